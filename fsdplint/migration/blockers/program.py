"""Blockers about files, imports and code that is not followed, whatever API they are about."""

from fsdplint.migration.blockers import Blocker, advice

IMPORTED_FROM_TWO = Blocker(
    "FSDP201-imported-from-two",
    "`{name}` is `{other}` in some configurations, and FSDP1's in others",
    "Give each of them a name of its own, and use it only in the branch that is about it; "
    "then run this again.",
)
NAME_OF_TWO_LIBRARIES = Blocker(
    "FSDP201-name-of-two-libraries",
    "`{name}` may be `{other}` here, or FSDP1's",
    "Give each of them a name of its own, and use it only in the branch that is about it; "
    "then run this again.",
)
GIVEN_TO_OTHER_LIBRARY = Blocker(
    "FSDP201-given-to-other-library",
    "`{other}` may also be given what becomes FSDP2's",
    "Make one for each of the two libraries; then run this again.",
)
EDIT_IN_OTHER_BRANCH = Blocker(
    "FSDP201-edit-in-other-branch",
    "this would change what is about `{other}`",
    "Give each of them a name of its own, and use it only in the branch that is about it; "
    "then run this again.",
)
FILE_NOT_GIVEN = Blocker(
    "FSDP201-file-not-given",
    "{what}: name that file as well",
    advice.NAME_FILE,
)
SETTING_NOT_IMPORTED = Blocker(
    "FSDP201-setting-not-imported",
    "{setting} of {path} too, which no program that wraps a model imports",
    "If these settings come to the same program, give them the names of the enum's members "
    "(strings) by hand; if nothing uses them any longer, delete them. Then run this again.",
)
METHOD_NOT_REACHED = Blocker(
    "FSDP299-method-not-reached",
    "`{method}` is a method of FSDP1's wrapper, and no run comes here: FSDP2's model does "
    "not have it",
    "{advice}",
)
NAME_PASSED_ON = Blocker(
    "FSDP299-name-passed-on",
    "`{name}` is FSDP1's, and comes from `{module}`: what becomes of it here is not followed",
    "Import it from `torch.distributed.fsdp` here, too; then run this again.",
)
CODE_NOT_REACHED = Blocker(
    "FSDP201-code-not-reached",
    "`{code}` stands in code that the program as given does not reach",
    advice.NAME_PROGRAM,
)
CALL_NOT_REACHED = Blocker(
    "FSDP201-call-not-reached",
    "the call of `{function}` stands in code that the program as given does not reach",
    advice.NAME_PROGRAM,
)
MODEL_HANDED_OUT = Blocker(
    "FSDP201-model-handed-out",
    "{function} gets the wrapped model, and its code cannot be seen",
    advice.LOOK_UP_FUNCTION,
)
CALLER_NOT_GIVEN = Blocker(
    "FSDP201-caller-not-given",
    "`{function}` is called from files that are not given",
    advice.NAME_FILE,
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
    "the program is too large: {limit}, and what comes then is not known",
    advice.BY_HAND,
)
REWRITES_CLASH = Blocker(
    "FSDP201-rewrites-clash",
    "two of the rewrites here get into each other's way",
    advice.SEPARATE_STATEMENTS,
)
WRAPPED_ELSEWHERE = Blocker(
    "FSDP201-wrapped-elsewhere",
    "the code that wraps the model is not given, which decides what becomes of `{name}`",
    "Name the file that wraps the model as well. Where a framework does it (Accelerate, "
    "Transformers' Trainer), set it to FSDP2 and write this for FSDP2's models by hand.",
)
WRAPPING_FUNCTION_NOT_CALLED = Blocker(
    "FSDP201-wrapping-function-not-called",
    "nothing that is given calls `{function}`: the code that wraps the model decides what "
    "becomes of `{name}`",
    "Take the function out if it is dead; otherwise name the file that calls it, too.",
)
PREPARED_WITH_OTHERS = Blocker(
    "FSDP201-prepared-with-others",
    "Accelerate wraps the model, which decides what becomes of `{name}`, and its {why}, "
    "unlike {place}",
    "Give each call of `prepare` one model and its optimizer (Accelerate raises a ValueError "
    "for any other), then set `fsdp_version: 2` and write this for FSDP2's models by hand. "
    "Or stay with FSDP1.",
)
NOT_IMPORTED = Blocker(
    "FSDP201-not-imported",
    "this file imports nothing of FSDP1 from torch: its name comes from other code",
    "Import the name from `torch.distributed.fsdp` in this file, or wrap the model where it "
    "is imported; then run this again.",
)
WRAPPER_ASKED = Blocker(
    "FSDP299-wrapper-asked",
    "no rewrite covers the way in which this asks FSDP1's wrapper",
    "Rewrite it by hand for a model that has no wrapper; then run this again.",
)
NAME_IN_PATCH = Blocker(
    "FSDP299-name-in-patch",
    "`{node}` names what `{module}` has of FSDP1, and no longer uses",
    "Patch `fully_shard` in its place, or take the test out; then run this again.",
)
REFUSED = Blocker(
    "FSDP201-refused",
    "the migration {reason}",
    advice.BY_HAND,
)
API_USE = Blocker(
    "FSDP299-api-use",
    "this use of `{name}` cannot be rewritten; in FSDP2 it is {becomes}",
    "{advice}",
)
INTERNAL = Blocker(
    "FSDP299-internal",
    "`{name}` is a part of FSDP1's inside that FSDP2 does not have",
    advice.BY_HAND,
)
FLAT_PARAMETER_INTERNAL = Blocker(
    "FSDP299-flat-parameter-internal",
    "`{name}` is a part of FSDP1's inside that FSDP2 does not have",
    advice.FLAT_PARAMETERS,
)
RULE_TURNED_OFF = Blocker(
    "FSDP201-rule-turned-off",
    "{code} is turned off here, and a migration is whole or not at all",
    "Take the comment or the setting away that turns it off.",
)
UNSAFE_REWRITE = Blocker(
    "FSDP201-unsafe-rewrite",
    "the rewrite may change what the program does: {title}",
    "Look at it (`fsdplint --diff --unsafe-fixes`), and take it with --unsafe-fixes.",
)
BROKEN_REWRITE = Blocker(
    "FSDP201-broken-rewrite",
    "the rewrite could not be put together ({error})",
    "This is a defect of fsdplint, please report it.",
)
