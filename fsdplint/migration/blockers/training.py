"""Blockers about training code: gradients, `no_sync`, the gradient scaler, members of the wrapper."""

from fsdplint.migration.blockers import Blocker, advice

REQUIRES_GRAD_WHILE_GATHERED = Blocker(
    "FSDP201-requires-grad-while-gathered",
    "`requires_grad` is set on parameters that FSDP2 keeps gathered after an evaluation, and "
    "loses what is set on them",
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
    "`fsdp_modules` of roots only: the root of FSDP2 is the module that you call",
    advice.FSDP_MODULES,
)
FSDP_MODULES_USE = Blocker(
    "FSDP299-fsdp-modules-use",
    "what is done with the modules of `fsdp_modules` may need FSDP1's wrappers",
    advice.FSDP_MODULES,
)
LARGEST_GRADIENT = Blocker(
    "FSDP204-largest-gradient",
    "the largest gradient of a parameter with fewer rows than ranks is asked of ranks that "
    "have none of it, which torch refuses (seen with 2.13)",
    "Clip by a finite norm, or take the largest gradient of each rank's part and of all "
    "ranks by hand.",
)
NORM_SOMETIMES_DTENSOR = Blocker(
    "FSDP204-norm-sometimes-dtensor",
    "the norm is a DTensor where FSDP2 shards the model, which it does in some configurations only",
    "Give the norm a name, and where it is a DTensor take its `full_tensor()`.",
)
NO_SYNC_OF_DDP_TOO = Blocker(
    "FSDP205-no-sync-of-ddp-too",
    "`no_sync` of a model that is DDP's in other configurations",
    advice.NO_SYNC_BLOCK,
)
NO_SYNC_LOOKED_FOR = Blocker(
    "FSDP205-no-sync-looked-for",
    "`no_sync` is looked for with hasattr",
    advice.NO_SYNC_BLOCK,
)
MODULE_ASSIGNED = Blocker(
    "FSDP299-module-assigned",
    "an assignment to `.module`",
    advice.NO_WRAPPER,
)
MODULE_OF_SOMETIMES_WRAPPED = Blocker(
    "FSDP299-module-of-sometimes-wrapped",
    "`.module` of a model that FSDP wraps in some configurations only",
    advice.CHOOSE_WAY,
)
SCALER_NOT_CALLED = Blocker(
    "FSDP209-scaler-not-called",
    "ShardedGradScaler is not called here (a subclass, or a name that is handed on): "
    "torch.amp.GradScaler takes its place",
    advice.SCALER_ARGUMENT,
)
SCALER_ARGUMENTS = Blocker(
    "FSDP209-scaler-arguments",
    "the arguments of ShardedGradScaler cannot be read here",
    advice.SCALER_ARGUMENT,
)
METHOD_AS_VALUE = Blocker(
    "FSDP299-method-as-value",
    "`{name}` of a wrapped model is taken as a function",
    advice.CALL_HERE,
)
PARTS_OUTSIDE_FORWARD = Blocker(
    "FSDP299-parts-outside-forward",
    "`.{name}()` runs parts of the wrapped model outside of its forward",
    advice.FORWARD_METHOD,
)
GENERATE_OUTSIDE_FORWARD = Blocker(
    "FSDP299-generate-outside-forward",
    "`.{name}()` of a wrapped model runs outside of its forward (FSDP1 wants "
    "`summon_full_params` around it): `register_fsdp_forward_method(model, {name!r})` makes "
    "FSDP2 gather the parameters for it",
    advice.WHOLE_PARAMETERS,
)
MEMBER_OF_SEVERAL_CLASSES = Blocker(
    "FSDP299-member-of-several-classes",
    "`.{name}` of what a test says to be FSDP1's wrapper or of another class",
    "Ask for the classes one by one: FSDP2's modules need other code than the others.",
)
FORWARD_AS_VALUE = Blocker(
    "FSDP299-forward-as-value",
    "`forward` of a wrapped model is taken as a function",
    advice.FORWARD_METHOD,
)
NO_SYNC_NOT_HEAD = Blocker(
    "FSDP205-no-sync-not-head",
    "`no_sync` that is not the head of a `with` block: in FSDP2 it is "
    "`set_requires_gradient_sync(False)` before the backward and `True` after it",
    advice.NO_SYNC_BLOCK,
)
SCALER_GROUP = Blocker(
    "FSDP209-scaler-group",
    "ShardedGradScaler with a process group: torch.amp.GradScaler asks the ranks that the "
    "model is sharded over; is that the same group?",
    advice.SCALER_ARGUMENT,
)
PARAMETER_PART = Blocker(
    "FSDP299-parameter-part",
    "`{code}` is about one rank's part of the parameters or gradients",
    advice.GRADIENT_PARTS,
)
DATA_REPLACED = Blocker(
    "FSDP299-data-replaced",
    "`{code}` is assigned, and FSDP2 goes on with the values from before: it gathers a "
    "sharded parameter from memory of its own",
    "Copy the values in place, `parameter.data.copy_(values)`, and keep a clone of what they "
    "replace; then run this again.",
)
NO_SYNC_CHOSEN = Blocker(
    "FSDP205-no-sync-chosen",
    "`no_sync` is chosen for a model that is FSDP1's in some configurations only",
    "Put the choice under one question of whether the model is FSDP's: in FSDP2 it is "
    "`model.set_requires_gradient_sync(...)`, which no other module has.",
)
GROUP_ASSIGNED = Blocker(
    "FSDP299-group-assigned",
    "an assignment to `.{name}` of FSDP1's wrapper",
    advice.ASK_DISTRIBUTED,
)
GROUP_UNKNOWN = Blocker(
    "FSDP299-group-unknown",
    "`.{name}` of FSDP1's wrapper: keep the process group, or the mesh, that the model is "
    "sharded over in a variable",
    advice.ASK_DISTRIBUTED,
)
APPLY_USE = Blocker(
    "FSDP299-apply-use",
    "this use of `FSDP.apply` cannot be followed",
    advice.APPLY_BEFORE,
)
APPLY_UNSEEN = Blocker(
    "FSDP299-apply-unseen",
    "`FSDP.apply` runs on whole parameters, and its function cannot be seen",
    advice.APPLY_BEFORE,
)
APPLY_ON_WHOLE = Blocker(
    "FSDP299-apply-on-whole",
    "`FSDP.apply` runs on whole parameters, FSDP2's on sharded ones: initialise the model "
    "before it is sharded",
    advice.APPLY_BEFORE,
)
INNER_ASSIGNED = Blocker(
    "FSDP299-inner-assigned",
    "an assignment to `.{name}`",
    advice.LEAVE_STEP_OUT,
)
INNER_NAME_SEARCHED = Blocker(
    "FSDP299-inner-name-searched",
    "names are searched for `{name}`, which those of FSDP2's parameters and modules do not have",
    advice.LEAVE_STEP_OUT,
)
WEIGHTS_TIED_IN_UNITS = Blocker(
    "FSDP201-weights-tied-in-units",
    "{one} shares its {name} with {other}, and FSDP1 wraps them in different units, which "
    "FSDP2 refuses",
    "Leave both modules to the root, so that the policy wraps neither of them; or shard by "
    "hand, with both in one group: `fully_shard([model.embedding, model.head])`.",
)
WEIGHTS_PERHAPS_TIED_IN_UNITS = Blocker(
    "FSDP201-weights-perhaps-tied-in-units",
    "{one} shares its {name} with {other}, and the policy, whose choice is not known here, "
    "may wrap them in different units, which FSDP2 refuses",
    "Leave both modules to the root, so that the policy wraps neither of them; or shard by "
    "hand, with both in one group: `fully_shard([model.embedding, model.head])`.",
)
PART_FORWARD = Blocker(
    "FSDP299-part-forward",
    "`.forward` of a part of the wrapped model, outside of the model's own forward: FSDP2 "
    "gathers the part's parameters only where the part is called, `part(x)`, and only once "
    "the whole model has run",
    advice.HOOK_OF_PART,
)
PART_FIRST = Blocker(
    "FSDP201-part-first",
    "a part of the model is called before the model itself: the first module of FSDP2 that "
    "is called becomes the root, and the model then fails (FSDP1's root is what was used "
    "first, its state too)",
    advice.BY_HAND,
)
GRADIENT_NORM = Blocker(
    "FSDP299-gradient-norm",
    "`{text}` is a norm of this rank's part of the gradients, and is added up without being "
    "squared, which depends on how FSDP1 cuts them: decide whether `** 2` is missing",
    advice.GRADIENT_PARTS,
)
GRADIENT_PART = Blocker(
    "FSDP299-gradient-part",
    "`{text}` is about this rank's part of the gradients, which FSDP1 cuts in its own way: "
    "decide whether the whole gradient (`p.grad.full_tensor()`) or this rank's part "
    "(`p.grad.to_local()`) is meant",
    advice.GRADIENT_PARTS,
)
NO_SYNC_AS_VALUE = Blocker(
    "FSDP205-no-sync-as-value",
    "`no_sync` of a wrapped model is taken as a function",
    advice.NO_SYNC_BLOCK,
)
GENERATE_RUNS_PARTS = Blocker(
    "FSDP299-generate-runs-parts",
    "`.{name}()` runs parts of the wrapped model outside of its forward",
    advice.REGISTER_METHOD,
)
COMM_HOOK = Blocker(
    "FSDP299-comm-hook",
    "`.{name}`: FSDP2 has no communication hooks of this kind: `set_custom_reduce_scatter` "
    "and `set_all_reduce_hook` replace single collectives",
    advice.COMM_HOOK,
)
FLAT_PARAMETER = Blocker(
    "FSDP299-flat-parameter",
    "`.{name}`: FSDP2 has no flat parameters: each parameter is a DTensor with its own name",
    advice.FLAT_PARAMETERS,
)
HANDLE = Blocker(
    "FSDP299-handle",
    "`.{name}`: FSDP2 has no flat parameters and no handles of them",
    advice.FLAT_PARAMETERS,
)
ROOT_ASKED = Blocker(
    "FSDP299-root-asked",
    "`.{name}`: no module of FSDP2 says whether it is the root: it is the one that you call",
    advice.BY_HAND,
)
STRATEGY_ASKED = Blocker(
    "FSDP299-strategy-asked",
    "`.{name}`: a module of FSDP2 does not know its strategy: keep it in a variable",
    advice.KEEP_IN_VARIABLE,
)
PRECISION_ASKED = Blocker(
    "FSDP299-precision-asked",
    "`.{name}`: a module of FSDP2 does not know its precision: keep the policy in a variable",
    advice.KEEP_IN_VARIABLE,
)
SETTING_ASKED = Blocker(
    "FSDP299-setting-asked",
    "`.{name}`: a module of FSDP2 does not know how it was wrapped: keep the value in a variable",
    advice.KEEP_IN_VARIABLE,
)
TRAINING_STATE_ASKED = Blocker(
    "FSDP299-training-state-asked",
    "`.{name}`: a module of FSDP2 does not say whether its forward or backward runs",
    advice.BY_HAND,
)
DEVICE_ASKED = Blocker(
    "FSDP299-device-asked",
    "`.{name}`: an attribute of FSDP1's wrapper: `next(model.parameters()).device` in FSDP2",
    advice.KEEP_IN_VARIABLE,
)
SET_TYPE_OF_MODULE = Blocker(
    "FSDP299-set-type-of-module",
    "`.{name}`: FSDP2 has no types of states: `get_model_state_dict` takes options",
    advice.BY_HAND,
)
