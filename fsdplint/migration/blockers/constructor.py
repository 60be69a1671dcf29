"""Blockers about the constructor of FSDP1's wrapper, its arguments, and the class itself."""

from fsdplint.migration.blockers import Blocker, advice

DEVICE_UNKNOWN = Blocker(
    "FSDP201-device-unknown",
    "neither `device_id` nor `torch.cuda.set_device` nor a mesh says which device is this rank's",
    advice.SET_DEVICE,
)
DEVICE_WITHOUT_MESH = Blocker(
    "FSDP201-device-without-mesh",
    "FSDP2 does not shard on `{name}`: `torch.{name}` has no current device for a DeviceMesh",
    "Shard on CUDA or on the CPU, or stay with FSDP1 on this device.",
)
QUANTIZED_WEIGHTS = Blocker(
    "FSDP201-quantized-weights",
    "the quantized weights of `{name}` carry attributes that FSDP2 does not keep",
    advice.QUANTIZED,
)
ATTACHED_AFTERWARDS = Blocker(
    "FSDP201-attached-afterwards",
    "this puts a trained module into a model that is wrapped already: its parameters stay plain "
    "tensors, which clipping, scalers and fused optimizers cannot mix with FSDP2's",
    "Put the module in before the model is wrapped, so that its gradients are reduced, too (FSDP1 "
    "does not reduce them now); then run this again.",
)
BUFFER_DTYPE_UNKNOWN = Blocker(
    "FSDP201-buffer-dtype-unknown",
    "the `buffer_dtype` of this policy is not known here",
    advice.BUFFER_DTYPE,
)
BUFFERS_EMPTIED_LATER = Blocker(
    "FSDP201-buffers-emptied-later",
    "the model gets memory by `to_empty` after it is wrapped, and FSDP1 casts its buffers later, in "
    "the first forward",
    "Leave `buffer_dtype` out, and cast the buffers after they have their values.",
)
CPU_OFFLOAD_ARGUMENTS = Blocker(
    "FSDP201-cpu-offload-arguments",
    "the arguments of `CPUOffload` cannot be read here",
    advice.WRITE_VALUE,
)
CONFIG_HANDED_ON = Blocker(
    "FSDP201-config-handed-on",
    "`{function}` gets this object and expects FSDP1's class",
    advice.LEAVE_OBJECT_OUT,
)
ENUM_MEMBER_READ = Blocker(
    "FSDP201-enum-member-read",
    "`{code}` reads a member of `{enum}`, which becomes its name (a string)",
    advice.BY_HAND,
)
IGNORED_PERHAPS_TRAINED = Blocker(
    "FSDP201-ignored-perhaps-trained",
    "the code does not show that the parameters in `{argument}` are frozen: FSDP2 leaves them "
    "plain tensors, which optimizers and `clip_grad_norm_` cannot mix with sharded ones",
    advice.IGNORED,
)
IGNORED_MIXED = Blocker(
    "FSDP201-ignored-mixed",
    "the code does not show that the parameters in `{argument}` are frozen, and {place} may get "
    "them: with FSDP2 they are plain tensors, which it cannot mix with sharded ones",
    advice.IGNORED,
)
CAST_INPUTS_DIFFER_IN_DICT = Blocker(
    "FSDP201-cast-inputs-differ-in-dict",
    "the policies of mixed precision in this program differ in `cast_forward_inputs`, and this "
    "one is in a dict",
    advice.PRECISION_OPTION,
)
OFFLOAD_UNKNOWN = Blocker(
    "FSDP201-offload-unknown",
    "the code here does not show whether the parameters that `param_init_fn` gives memory are "
    "offloaded",
    advice.META_VALUES,
)
META_TO_SEVERAL_DEVICES = Blocker(
    "FSDP201-meta-to-several-devices",
    "models on the meta device get memory on different devices",
    advice.BY_HAND,
)
DICT_UNREADABLE = Blocker(
    "FSDP201-dict-unreadable",
    "this dict of arguments cannot be read here",
    advice.WRITE_VALUE,
)
ARGUMENTS_UNREADABLE = Blocker(
    "FSDP201-arguments-unreadable",
    "the arguments of FSDP(...) cannot be read here",
    advice.WRITE_VALUE,
)
KEYWORDS_UNSEEN = Blocker(
    "FSDP201-keywords-unseen",
    "the dict in `**{name}` is not made in this function",
    advice.WRITE_KEYWORDS,
)
KEY_TWICE = Blocker(
    "FSDP201-key-twice",
    "`{name}` gets the same key twice",
    advice.WRITE_ARGUMENTS,
)
KEY_UNDER_CONDITION = Blocker(
    "FSDP201-key-under-condition",
    "`{key}` is set under a condition",
    "Give it a variable of its own that is None otherwise (`value = ... if test else None`), "
    "and hand that on: `{key}=value`.",
)
ARGUMENTS_USED_ELSEWHERE = Blocker(
    "FSDP201-arguments-used-elsewhere",
    "the arguments in `{name}` are used here in another way",
    advice.KEEP_DICT,
)
PARAM_INIT_FN_IN_DICT = Blocker(
    "FSDP201-param-init-fn-in-dict",
    "`{key}` is in a dict of arguments",
    advice.META_VALUES,
)
ARGUMENTS_OF_SEVERAL_CALLS = Blocker(
    "FSDP201-arguments-of-several-calls",
    "the arguments in `{name}` are given to more than one call",
    "Give each call a dict of its own, and write the items of `{name}` out.",
)
META_WITH_DICT = Blocker(
    "FSDP201-meta-with-dict",
    "a model on the meta device is wrapped without `param_init_fn`, with its arguments in a "
    "dict: FSDP1 gives its parameters memory and calls each module's `reset_parameters`",
    advice.GIVE_INIT_FN,
)
META_WITH_SYNC = Blocker(
    "FSDP201-meta-with-sync",
    "a model on the meta device is wrapped without `param_init_fn`, with `sync_module_states`: "
    "FSDP1 gives its parameters memory and calls each module's `reset_parameters`, and then all "
    "ranks get rank 0's values",
    advice.GIVE_INIT_FN,
)
SYNC_OF_EMPTY = Blocker(
    "FSDP201-sync-of-empty",
    "in some configurations rank 0 builds the model on the meta device, too: then "
    "`sync_module_states` has no weights to send, and `set_model_state_dict` fails on its state",
    "Set `sync_module_states` only where rank 0 has weights; then run this again.",
)
META_WITH_IGNORED = Blocker(
    "FSDP201-meta-with-ignored",
    "a model on the meta device is wrapped without `param_init_fn`, with ignored parameters, "
    "which keep their values: FSDP1 gives its parameters memory and calls each module's "
    "`reset_parameters`",
    advice.GIVE_INIT_FN,
)
META_WITH_POLICY = Blocker(
    "FSDP201-meta-with-policy",
    "a model on the meta device is wrapped without `param_init_fn`, with a policy by size or of "
    "three parameters: FSDP1 gives its parameters memory and calls each module's "
    "`reset_parameters`",
    advice.GIVE_INIT_FN,
)
GATHERED_PARAMETERS_SET = Blocker(
    "FSDP201-gathered-parameters-set",
    "the strategy may keep the parameters gathered after a forward, and the program sets them "
    "then: under FSDP2 they are whole tensors, which do not go with DTensors",
    "Shard this model with `FULL_SHARD`, or set its parameters before its forward.",
)
PRECISION_ARGUMENTS = Blocker(
    "FSDP201-precision-arguments",
    "the arguments of `MixedPrecision` cannot be read here",
    advice.WRITE_VALUE,
)
LOW_PRECISION_GRADS = Blocker(
    "FSDP201-low-precision-grads",
    "FSDP2 has no counterpart of `keep_low_precision_grads`",
    advice.LOW_PRECISION_GRADS,
)
CLASSES_TO_IGNORE = Blocker(
    "FSDP201-classes-to-ignore",
    "FSDP2 has no counterpart of `_module_classes_to_ignore`",
    advice.PRECISION_OPTION,
)
CAST_ROOT_INPUTS = Blocker(
    "FSDP201-cast-root-inputs",
    "the code does not show for each policy whether the root casts its inputs",
    advice.PRECISION_OPTION,
)
CAST_INPUTS_UNKNOWN = Blocker(
    "FSDP201-cast-inputs-unknown",
    "`cast_forward_inputs` is only known at run time",
    advice.PRECISION_OPTION,
)
PRECISION_FIELD_READ = Blocker(
    "FSDP201-precision-field-read",
    "`{field}` is read here, and FSDP2's policy does not have it",
    "{advice}",
)
PRECISION_FIELD_SET = Blocker(
    "FSDP201-precision-field-set",
    "`{field}` is set here, and FSDP2's policies cannot be changed",
    "Give the constructor of the policy this value, or make another one with `dataclasses.replace`; "
    "then run this again.",
)
UNKNOWN_ARGUMENT = Blocker(
    "FSDP201-unknown-argument",
    "FSDP(...) takes no argument `{name}` here: the call raises TypeError",
    "Remove the argument; FSDP1 does not have the arguments of DDP and fairscale.",
)
CONFIG_UNSEEN = Blocker(
    "FSDP201-config-unseen",
    "these files do not make this `{old}`",
    advice.WRITE_VALUE,
)
STRATEGY_IN_DICT_WITH_MESH = Blocker(
    "FSDP201-strategy-in-dict-with-mesh",
    "the strategy is in a dict, and the call also gets a mesh",
    advice.GIVE_MESH,
)
PARAM_INIT_FN_WITH_SYNC = Blocker(
    "FSDP201-param-init-fn-with-sync",
    "FSDP(...) gets this `param_init_fn` together with `sync_module_states`",
    advice.META_VALUES,
)
CPU_OFFLOAD_SHARED = Blocker(
    "FSDP201-cpu-offload-shared",
    "this `CPUOffload` is used elsewhere too",
    advice.OWN_OBJECTS,
)
MODULE_UNKNOWN = Blocker(
    "FSDP201-module-unknown",
    "which module FSDP(...) wraps cannot be read here",
    advice.WRITE_VALUE,
)
MODULE_WITHOUT_FORWARD = Blocker(
    "FSDP201-module-without-forward",
    "the call wraps a ModuleList or ModuleDict, which FSDP2 does not shard: it has no forward",
    advice.WRAP_CHILDREN,
)
IGNORED_WITH_PARAM_INIT_FN = Blocker(
    "FSDP201-ignored-with-param-init-fn",
    "the call ignores parameters and has a `param_init_fn`, which would give them new values, too",
    advice.META_VALUES,
)
CALL_IN_HEAD = Blocker(
    "FSDP201-call-in-head",
    "FSDP(...) is in the head of a compound statement",
    advice.OWN_STATEMENT,
)
CALL_WITH_SEVERAL_TARGETS = Blocker(
    "FSDP201-call-with-several-targets",
    "FSDP(...) is part of an assignment to several targets",
    advice.OWN_STATEMENT,
)
CAST_INPUTS_DIFFER = Blocker(
    "FSDP201-cast-inputs-differ",
    "one call wraps the model and its parts, which cast their inputs differently",
    advice.BY_HAND,
)
CALL_IN_EXPRESSION = Blocker(
    "FSDP201-call-in-expression",
    "FSDP(...) with submodules to shard is inside a lambda, a comprehension or a "
    "conditional expression",
    advice.OWN_STATEMENT,
)
CONFIG_GIVEN_TO_FRAMEWORK = Blocker(
    "FSDP201-config-given-to-framework",
    "`{api}` of {framework} gets this object, too ({place}), and expects FSDP1's class",
    "Give the framework a policy or config of its own, or move it to FSDP2 as well.",
)
PARTIAL_POSITIONAL = Blocker(
    "FSDP201-partial-positional",
    "a partial of FSDP has positional arguments",
    advice.WRITE_ARGUMENTS,
)
PARTIAL_OF_SEVERAL = Blocker(
    "FSDP201-partial-of-several",
    "a partial of FSDP that does more than shard one module has no counterpart: write a function "
    "that shards the submodules and then the module",
    advice.WRITE_ARGUMENTS,
)
PARTIAL_BEFORE_GROUP = Blocker(
    "FSDP201-partial-before-group",
    "a partial of FSDP needs a mesh, and the process group may not exist here yet",
    advice.WRITE_ARGUMENTS,
)
BATCH_NORM = Blocker(
    "FSDP201-batch-norm",
    "FSDP1 keeps batch norms out of mixed precision, FSDP2 does not: {place}",
    advice.BATCH_NORM,
)
SUBCLASS = Blocker(
    "FSDP201-subclass",
    "a subclass of FSDP has no counterpart: FSDP2 has no wrapper, so its methods have to become "
    "functions of the model",
    advice.BY_HAND,
)
WRAPPER_CLS = Blocker(
    "FSDP201-wrapper-cls",
    "FSDP is passed as `wrapper_cls`: shard the modules with `fully_shard` one by one",
    advice.BY_HAND,
)
CLASS_AS_ARGUMENT = Blocker(
    "FSDP201-class-as-argument",
    "the FSDP class is passed as an argument to `{function}`: `fully_shard` is a function "
    "that shards in place",
    advice.WRAP_IN_ONE_PLACE,
)
CLASS_RENAMED = Blocker(
    "FSDP201-class-renamed",
    "the FSDP class gets another name: `fully_shard` is a function, not a class",
    advice.BY_HAND,
)
CLASS_USE = Blocker(
    "FSDP201-class-use",
    "this use of the FSDP class has no rewrite: `fully_shard` is a function, and FSDP2 has no "
    "wrapper",
    advice.BY_HAND,
)
WRAPPED_PARTS = Blocker(
    "FSDP201-wrapped-parts",
    "FSDP1 raises ValueError here: parts of the module are wrapped already, and the call has a "
    "wrapping policy",
    "Decide which call is meant to shard the parts, and remove the other call or its policy.",
)
