"""Blockers about training code: gradients, `no_sync`, the gradient scaler, members of the wrapper."""

from fsdplint.migration.blockers import Blocker, advice

REQUIRES_GRAD_WHILE_GATHERED = Blocker(
    "FSDP201-requires-grad-while-gathered",
    "`requires_grad` is set on parameters that FSDP2 keeps gathered after an evaluation, and "
    "FSDP2 loses the setting",
    "Set `requires_grad` before the evaluation, or migrate by hand and call `reshard()` on "
    "every `FSDPModule` of the model before this line.",
)
FSDP_MODULES_NOT_CALLED = Blocker(
    "FSDP299-fsdp-modules-not-called",
    "`fsdp_modules` is not called here",
    advice.FSDP_MODULES,
)
FSDP_MODULES_OF_ROOTS = Blocker(
    "FSDP299-fsdp-modules-of-roots",
    "`fsdp_modules` lists roots only: the root of FSDP2 is the module that the program calls",
    advice.FSDP_MODULES,
)
FSDP_MODULES_USE = Blocker(
    "FSDP299-fsdp-modules-use",
    "this use of the modules of `fsdp_modules` may need FSDP1's wrappers",
    advice.FSDP_MODULES,
)
CLASS_BY_NAME = Blocker(
    "FSDP299-class-by-name",
    "the code compares the name of a class with that of FSDP1's, which no model of FSDP2 has",
    "Ask for the class itself: `isinstance(module, FSDPModule)`.",
)
KERNEL_OPTIMIZER = Blocker(
    "FSDP299-kernel-optimizer",
    "the kernels of `{name}` do not take the sharded parameters of FSDP2, which are DTensors",
    "Choose an optimizer that takes DTensors: one of `torch.optim`, or one of `torchao.optim` for "
    "states of 8 bits. Then run this again.",
)
PLAIN_STATE = Blocker(
    "FSDP299-plain-state",
    "`{code}` makes a plain tensor with the whole shape of a parameter, which is a DTensor in FSDP2: "
    "no operation takes both",
    "Make the state with `torch.zeros_like(p)`; then run this again.",
)
LARGEST_GRADIENT = Blocker(
    "FSDP204-largest-gradient",
    "this takes the largest gradient of a parameter with fewer rows than ranks: some ranks have "
    "no part of it, and torch refuses that (seen with 2.13)",
    "Clip by a finite norm, or compute the largest gradient of each rank's part and then of all "
    "ranks by hand.",
)
NORM_SOMETIMES_DTENSOR = Blocker(
    "FSDP204-norm-sometimes-dtensor",
    "the norm is a DTensor if FSDP2 shards the model, which happens in some configurations only",
    "Give the norm a name, and call `full_tensor()` on it if it is a DTensor.",
)
NO_SYNC_LOOKED_FOR = Blocker(
    "FSDP205-no-sync-looked-for",
    "hasattr looks for `no_sync`",
    advice.NO_SYNC_BLOCK,
)
MODULE_ASSIGNED = Blocker(
    "FSDP299-module-assigned",
    "the code assigns to `.module`",
    advice.NO_WRAPPER,
)
MODULE_OF_SOMETIMES_WRAPPED = Blocker(
    "FSDP299-module-of-sometimes-wrapped",
    "`.module` belongs to a model that FSDP wraps in some configurations only",
    advice.CHOOSE_WAY,
)
MIXED_CLIPPING = Blocker(
    "FSDP201-mixed-clipping",
    "this clips parameters that FSDP wraps together with others: with FSDP2 these are plain "
    "tensors, which clipping cannot mix with sharded ones",
    advice.SHARD_THE_REST,
)
MIXED_SCALER = Blocker(
    "FSDP201-mixed-scaler",
    "a gradient scaler steps this optimizer, which has parameters that FSDP wraps and others: "
    "with FSDP2 these are plain tensors, which a scaler cannot mix with sharded ones",
    advice.SHARD_THE_REST,
)
MIXED_LISTS = Blocker(
    "FSDP201-mixed-lists",
    "this optimizer updates lists of parameters that FSDP wraps and of others: with FSDP2 these "
    "are plain tensors, which its functions for lists cannot mix with sharded ones",
    advice.SHARD_THE_REST,
)
SCALER_NOT_CALLED = Blocker(
    "FSDP209-scaler-not-called",
    "ShardedGradScaler is not called here (a subclass, or a name that is passed on): use "
    "torch.amp.GradScaler instead",
    advice.SCALER_ARGUMENT,
)
SCALER_ARGUMENTS = Blocker(
    "FSDP209-scaler-arguments",
    "the arguments of ShardedGradScaler cannot be read here",
    advice.SCALER_ARGUMENT,
)
METHOD_AS_VALUE = Blocker(
    "FSDP299-method-as-value",
    "`{name}` of a wrapped model is used without a call",
    advice.CALL_HERE,
)
MEMBER_BY_NAME = Blocker(
    "FSDP299-member-by-name",
    "a string names `{name}` of a wrapped model",
    advice.CALL_HERE,
)
PARTS_OUTSIDE_FORWARD = Blocker(
    "FSDP299-parts-outside-forward",
    "`.{name}()` runs parts of the wrapped model outside of its forward, and the code does not "
    "show where this model is sharded",
    advice.FORWARD_METHOD,
)
GENERATE_OUTSIDE_FORWARD = Blocker(
    "FSDP299-generate-outside-forward",
    "`.{name}()` of a wrapped model runs outside of its forward, and the code does not show where "
    "this model is sharded",
    advice.FORWARD_METHOD,
)
MEMBER_OF_SEVERAL_CLASSES = Blocker(
    "FSDP299-member-of-several-classes",
    "`.{name}` belongs to FSDP1's wrapper or to another class, because one test allows both",
    "Test for each class separately: FSDP2's modules need other code than the others.",
)
FORWARD_AS_VALUE = Blocker(
    "FSDP299-forward-as-value",
    "`forward` of a wrapped model is used without a call",
    advice.FORWARD_METHOD,
)
SCALER_GROUP = Blocker(
    "FSDP209-scaler-group",
    "ShardedGradScaler has a process group: torch.amp.GradScaler uses the ranks that the model "
    "is sharded over, which may be another group",
    advice.SCALER_ARGUMENT,
)
PARAMETER_PART = Blocker(
    "FSDP299-parameter-part",
    "`{code}` reads one rank's part of the parameters or gradients",
    advice.GRADIENT_PARTS,
)
DATA_REPLACED = Blocker(
    "FSDP299-data-replaced",
    "`{code}` gets a new tensor, and FSDP2 ignores it: it gathers a sharded parameter from "
    "memory of its own",
    "Copy the values in place, `parameter.data.copy_(values)`, and keep a clone of the old "
    "values; then run this again.",
)
GROUP_ASSIGNED = Blocker(
    "FSDP299-group-assigned",
    "the code assigns to `.{name}` of FSDP1's wrapper",
    advice.ASK_DISTRIBUTED,
)
GROUP_UNKNOWN = Blocker(
    "FSDP299-group-unknown",
    "FSDP2's model has no `.{name}`: keep the process group or the mesh that shards the model in "
    "a variable",
    advice.ASK_DISTRIBUTED,
)
APPLY_USE = Blocker(
    "FSDP299-apply-use",
    "this use of `FSDP.apply` cannot be followed",
    advice.APPLY_BEFORE,
)
APPLY_UNSEEN = Blocker(
    "FSDP299-apply-unseen",
    "`FSDP.apply` runs on whole parameters, and the code of its function cannot be seen",
    advice.APPLY_BEFORE,
)
APPLY_ON_WHOLE = Blocker(
    "FSDP299-apply-on-whole",
    "`FSDP.apply` runs on whole parameters, and FSDP2's `apply` on sharded ones: initialise the "
    "model before it is sharded",
    advice.APPLY_BEFORE,
)
INNER_ASSIGNED = Blocker(
    "FSDP299-inner-assigned",
    "the code assigns to `.{name}`",
    advice.LEAVE_STEP_OUT,
)
INNER_NAME_SEARCHED = Blocker(
    "FSDP299-inner-name-searched",
    "the code searches names for `{name}`, and FSDP2's names of parameters and modules do not "
    "have it",
    advice.LEAVE_STEP_OUT,
)
WEIGHTS_TIED_IN_UNITS = Blocker(
    "FSDP201-weights-tied-in-units",
    "{one} shares its {name} with {other}, and FSDP1 wraps them in different units, which FSDP2 "
    "refuses",
    "Exclude both modules from the policy, so that they belong to the root; or shard by hand, "
    "with both in one group: `fully_shard([model.embedding, model.head])`.",
)
WEIGHTS_PERHAPS_TIED_IN_UNITS = Blocker(
    "FSDP201-weights-perhaps-tied-in-units",
    "{one} shares its {name} with {other}, and the policy may wrap them in different units, "
    "which FSDP2 refuses",
    "Exclude both modules from the policy, so that they belong to the root; or shard by hand, "
    "with both in one group: `fully_shard([model.embedding, model.head])`.",
)
PART_FORWARD = Blocker(
    "FSDP299-part-forward",
    "`.forward` of a part of the wrapped model runs outside of the model's own forward: FSDP2 "
    "gathers the part's parameters only if the part is called, `part(x)`, and only after the "
    "whole model has run",
    advice.HOOK_OF_PART,
)
PART_FIRST = Blocker(
    "FSDP201-part-first",
    "a part of the model is called before the model itself: FSDP2 makes the first called module "
    "the root, and then the model fails (with FSDP1 the root is the first module that is used, "
    "also for its state)",
    "Decide which call comes first. Call the whole model once before the part: a forward under "
    "`torch.no_grad()` is enough. Or call the part in a method of the model, and register it with "
    "`register_fsdp_forward_method`.",
)
GRADIENT_NORM = Blocker(
    "FSDP299-gradient-norm",
    "`{text}` is a norm of this rank's part of the gradients, and it is added up without being "
    "squared, so the sum depends on how FSDP1 cuts the gradients: decide whether `** 2` is "
    "missing",
    advice.GRADIENT_PARTS,
)
GRADIENT_PART = Blocker(
    "FSDP299-gradient-part",
    "`{text}` reads this rank's part of the gradients, and FSDP1 cuts them differently: decide "
    "whether the whole gradient (`p.grad.full_tensor()`) or this rank's part "
    "(`p.grad.to_local()`) is meant",
    advice.GRADIENT_PARTS,
)
METHOD_ON_SOME_RANKS = Blocker(
    "FSDP299-method-on-some-ranks",
    "`.{name}()` of a wrapped model runs outside of its forward, and only some ranks call it: the "
    "others never take part in gathering the parameters",
    advice.REGISTER_METHOD,
)
COMM_HOOK = Blocker(
    "FSDP299-comm-hook",
    "`.{name}`: FSDP2 has no communication hooks of this kind; `set_custom_reduce_scatter` and "
    "`set_all_reduce_hook` replace single collectives",
    advice.COMM_HOOK,
)
FLAT_PARAMETER = Blocker(
    "FSDP299-flat-parameter",
    "`.{name}`: FSDP2 has no flat parameters; each parameter is a DTensor with its own name",
    advice.FLAT_PARAMETERS,
)
HANDLE = Blocker(
    "FSDP299-handle",
    "`.{name}`: FSDP2 has no flat parameters and no handles of them",
    advice.FLAT_PARAMETERS,
)
ROOT_ASKED = Blocker(
    "FSDP299-root-asked",
    "`.{name}`: a module of FSDP2 does not say whether it is the root; the root is the module "
    "that the program calls",
    advice.BY_HAND,
)
STRATEGY_ASKED = Blocker(
    "FSDP299-strategy-asked",
    "`.{name}`: a module of FSDP2 does not know its strategy; keep it in a variable",
    advice.KEEP_IN_VARIABLE,
)
PRECISION_ASKED = Blocker(
    "FSDP299-precision-asked",
    "`.{name}`: a module of FSDP2 does not know its precision; keep the policy in a variable",
    advice.KEEP_IN_VARIABLE,
)
SETTING_ASKED = Blocker(
    "FSDP299-setting-asked",
    "`.{name}`: a module of FSDP2 does not know how it was wrapped; keep the value in a variable",
    advice.KEEP_IN_VARIABLE,
)
TRAINING_STATE_ASKED = Blocker(
    "FSDP299-training-state-asked",
    "`.{name}`: a module of FSDP2 does not say whether its forward or backward runs",
    advice.BY_HAND,
)
DEVICE_ASKED = Blocker(
    "FSDP299-device-asked",
    "`.{name}`: only FSDP1's wrapper has this attribute; with FSDP2 it is "
    "`next(model.parameters()).device`",
    advice.KEEP_IN_VARIABLE,
)
SET_TYPE_OF_MODULE = Blocker(
    "FSDP299-set-type-of-module",
    "`.{name}`: FSDP2 has no types of states; `get_model_state_dict` takes options",
    advice.BY_HAND,
)
