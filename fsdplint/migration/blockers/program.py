"""Blockers about files, imports and code that is not followed, whatever API they are about."""

from fsdplint.migration.blockers import Blocker, advice

IMPORTED_FROM_TWO = Blocker(
    "FSDP201-imported-from-two",
    "`{name}` is `{other}` in some configurations, and FSDP1's in others",
    "Give each of them a name of its own, and use it only in the branch of its library; then run "
    "this again.",
)
NAME_OF_TWO_LIBRARIES = Blocker(
    "FSDP201-name-of-two-libraries",
    "`{name}` may be `{other}` here, or FSDP1's",
    "Give each of them a name of its own, and use it only in the branch of its library; then run "
    "this again.",
)
GIVEN_TO_OTHER_LIBRARY = Blocker(
    "FSDP201-given-to-other-library",
    "`{other}` may also get this object, which becomes FSDP2's",
    "Make one object for each of the two libraries; then run this again.",
)
EDIT_IN_OTHER_BRANCH = Blocker(
    "FSDP201-edit-in-other-branch",
    "the rewrite would change code for `{other}`",
    "Give each of them a name of its own, and use it only in the branch of its library; then run "
    "this again.",
)
FILE_NOT_GIVEN = Blocker(
    "FSDP201-file-not-given",
    "{what}: name that file as well",
    advice.NAME_FILE,
)
SETTING_NOT_IMPORTED = Blocker(
    "FSDP201-setting-not-imported",
    "{setting} of {path} too, which no program that wraps a model imports",
    "If these settings reach the same program, replace them by the names of the enum's members "
    "(strings). If nothing uses them, delete them. Then run this again.",
)
METHOD_NOT_REACHED = Blocker(
    "FSDP299-method-not-reached",
    "`{method}` is a method of FSDP1's wrapper that FSDP2's model does not have, and no run "
    "reaches this code",
    "{advice}",
)
NAME_PASSED_ON = Blocker(
    "FSDP299-name-passed-on",
    "`{name}` of FSDP1 comes from `{module}`, and its uses here are not followed",
    "Import it from `torch.distributed.fsdp` here, too; then run this again.",
)
CODE_NOT_REACHED = Blocker(
    "FSDP201-code-not-reached",
    "the given program does not reach this code with `{code}`",
    advice.NAME_PROGRAM,
)
CALL_NOT_REACHED = Blocker(
    "FSDP201-call-not-reached",
    "the given program does not reach this call of `{function}`",
    advice.NAME_PROGRAM,
)
MODEL_HANDED_OUT = Blocker(
    "FSDP201-model-handed-out",
    "{function} gets the wrapped model, and its code cannot be seen",
    advice.LOOK_UP_FUNCTION,
)
MODEL_COPIED = Blocker(
    "FSDP201-model-copied",
    "a wrapped model is copied, which FSDP2 does not allow",
    advice.COPY_BEFORE,
)
OPTIMIZER_FIRST = Blocker(
    "FSDP201-optimizer-first",
    "the optimizer is built before the model is wrapped",
    advice.OPTIMIZER_AFTER,
)
OPTIMIZER_GIVEN_FIRST = Blocker(
    "FSDP201-optimizer-given-first",
    "`{code}` gives an optimizer before the model is wrapped",
    advice.OPTIMIZER_AFTER,
)
STAR_IMPORT = Blocker(
    "FSDP201-star-import",
    "`import *` hides which names of `{module}` are used",
    advice.IMPORT_NAMES,
)
TOO_MANY_USES = Blocker(
    "FSDP201-too-many-uses",
    "more than {limit} uses of FSDP1 belong together; migrate by hand",
    advice.BY_HAND,
)
PROGRAM_TOO_LARGE = Blocker(
    "FSDP201-program-too-large",
    "the program is too large: {limit}, and the rest is not known",
    advice.TOO_LARGE,
)
REWRITES_CLASH = Blocker(
    "FSDP201-rewrites-clash",
    "two rewrites change the same code here",
    advice.SEPARATE_STATEMENTS,
)
WRAPPED_ELSEWHERE = Blocker(
    "FSDP201-wrapped-elsewhere",
    "the rewrite of `{name}` depends on the code that wraps the model, which is not given",
    "Name the file that wraps the model as well. If a framework wraps it (Accelerate, "
    "Transformers' Trainer), set the framework to FSDP2 and write this for FSDP2's models by hand.",
)
WRAPPED_BY_SUBCLASS = Blocker(
    "FSDP201-wrapped-by-subclass",
    "the rewrite of `{name}` depends on the subclass of FSDP that wraps the model ({place})",
    "Rewrite the subclass first, with functions that get the model. Then run this again.",
)
CONSTANT_WITHOUT_MODEL = Blocker(
    "FSDP201-constant-without-model",
    "no file that imports this one wraps a model with FSDP1, so that nothing shows what `{name}` is for",
    "Remove the constant if nothing reads it. If a program gets it without an import, name that "
    "program as well. The other programs are migrated without this file.",
)
WRAPPING_FUNCTION_NOT_CALLED = Blocker(
    "FSDP201-wrapping-function-not-called",
    "the rewrite of `{name}` depends on the code that wraps the model, and no given file calls "
    "`{function}`",
    "Remove the function if it is dead; otherwise name the file that calls it, too.",
)
PREPARED_WITH_OTHERS = Blocker(
    "FSDP201-prepared-with-others",
    "Accelerate wraps the model, which decides on the rewrite of `{name}`, and its {why}, unlike "
    "{place}",
    "Give each call of `prepare` one model and its optimizer (Accelerate raises a ValueError for "
    "any other call). Then set `fsdp_version: 2` and write this for FSDP2's models by hand. Or "
    "stay with FSDP1.",
)
NOT_IMPORTED = Blocker(
    "FSDP201-not-imported",
    "this file imports nothing of FSDP1 from torch: it gets the name from other code",
    "Import the name from `torch.distributed.fsdp` in this file, or wrap the model where it "
    "is imported; then run this again.",
)
WRAPPER_ASKED = Blocker(
    "FSDP299-wrapper-asked",
    "this use of FSDP1's wrapper has no rewrite",
    "Rewrite it by hand for a model without a wrapper; then run this again.",
)
NAME_IN_PATCH = Blocker(
    "FSDP299-name-in-patch",
    "`{node}` patches a name of FSDP1 in `{module}`, which no longer uses it",
    "Patch `fully_shard` instead, or remove the test; then run this again.",
)
REFUSED = Blocker(
    "FSDP201-refused",
    "the migration {reason}",
    advice.BY_HAND,
)
ERROR_BROUGHT = Blocker(
    "FSDP201-error-brought",
    "the migration {reason}",
    "Change the program so that it does not need what FSDP2 does not allow here; this works with "
    "FSDP1, too. Or migrate by hand, and compare with `fsdplint validate BEFORE AFTER`.",
)
ERROR_TURNED = Blocker(
    "FSDP201-error-turned",
    "the migration {reason}",
    "Fix this error first: the program has it with FSDP1, too. Then run this again.",
)
USE_LEFT = Blocker(
    "FSDP201-use-left",
    "the migration {reason}",
    "A model of FSDP2 has neither the class nor the methods and attributes of FSDP1's wrapper. "
    "Remove the code if it is dead, or write it so that it works with both; then run this again.",
)
FACT_CHANGED = Blocker(
    "FSDP201-fact-changed",
    "the migration {reason}",
    "Write this part of the program more directly (arguments at the call, constants in place of "
    "values that are computed) and run this again. Or migrate by hand, and compare with `fsdplint "
    "validate BEFORE AFTER`.",
)
API_USE = Blocker(
    "FSDP299-api-use",
    "this use of `{name}` cannot be rewritten; {counterpart}",
    "{advice}",
)
INTERNAL = Blocker(
    "FSDP299-internal",
    "`{name}` is internal to FSDP1, and FSDP2 does not have it",
    advice.BY_HAND,
)
METHOD_AS_NAME = Blocker(
    "FSDP299-method-as-name",
    "torch.distributed.fsdp has no `{name}`: it is a method of `FullyShardedDataParallel`",
    "Call the method of the class, `FullyShardedDataParallel.{name}(...)`; then run this again.",
)
FLAT_PARAMETER_INTERNAL = Blocker(
    "FSDP299-flat-parameter-internal",
    "`{name}` is internal to FSDP1, and FSDP2 does not have it",
    advice.FLAT_PARAMETERS,
)
DEPENDS = Blocker(
    "FSDP201-depends-on-decision",
    "the rewrite of this code depends on the decision about `{code}`",
    "Decide about that code first; then write this for FSDP2.",
)
RULE_TURNED_OFF = Blocker(
    "FSDP201-rule-turned-off",
    "{code} is turned off here, and a program is migrated whole or not at all",
    "Remove the comment or the setting that turns it off.",
)
UNSAFE_REWRITE = Blocker(
    "FSDP201-unsafe-rewrite",
    "the rewrite may change what the program does: {title}",
    "Read the change (`fsdplint --diff --unsafe-fixes`), and apply it with --unsafe-fixes.",
)
BROKEN_REWRITE = Blocker(
    "FSDP201-broken-rewrite",
    "the rewrite could not be applied ({error})",
    "This is a defect of fsdplint; please report it.",
)
