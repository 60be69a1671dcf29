"""What a person has to decide where a migration is blocked.

A blocker may say it itself (`Blocked.advice`). For all others the words of the reason decide: the
first of the patterns below that is found in it.
"""

from __future__ import annotations

import re

from fsdplint.migration.context import Blocked

KINDS: tuple[tuple[str, str], ...] = (
    # Files and code that are not in sight.
    (
        r"name that file as well|files? that .*not given|from files that are not given",
        "Name that file as well, or the folder that holds all of them.",
    ),
    (
        r"gets the wrapped model, and its code cannot be seen",
        "Look up what this function does with FSDP1's wrapper. If it is yours, name its file as well; "
        "if it is a library's, take its counterpart for FSDP2 (or leave the call out), and run this "
        "again.",
    ),
    (
        r"stands in code that the program as given does not reach",
        "Nothing that could be followed leads here. Take it out if it is dead; otherwise name the "
        "program (or config) that comes here as well.",
    ),
    (
        r"taken by code that this block calls",
        "Take or load the state in this block itself, or inside of the function that it calls with a "
        "`state_dict_type` of its own; then the two stand together and are rewritten.",
    ),
    (
        r"`import \*`",
        "Import the names that are used.",
    ),
    # The model and its wrapper.
    (
        r"`\.(rank|world_size|process_group)`",
        "Ask torch.distributed instead: `dist.get_rank()`, `dist.get_world_size()`, `dist.group.WORLD`, "
        "or the group that the model was given. This is right with FSDP1, too, so it can be done first.",
    ),
    (
        r"`\.(compute_device|sharding_strategy|mixed_precision)`",
        "Keep what the model was wrapped with in a variable of the program (the device: "
        "`torch.device('cuda', torch.cuda.current_device())`), and read that. This is right with FSDP1, "
        "too, so it can be done first.",
    ),
    (
        r"`\.apply`|FSDP\.apply",
        "Call `apply` on the module before it is wrapped, where the parameters are whole. On a module "
        "that `fully_shard` shards it gets DTensors.",
    ),
    (
        r"register_comm_hook|communication hooks",
        "Decide what becomes of the hook: for lower precision, `reduce_dtype` of "
        "MixedPrecisionPolicy; for anything else `set_all_reduce_hook` (torch 2.7) or "
        "`set_custom_reduce_scatter` (torch 2.9), written anew.",
    ),
    (
        r"flat_param|FlatParameter|_flat_param|_get_fsdp_handles|_runtime_utils|_common_utils"
        r"|_traversal_utils|_handle\b|_lazy_init",
        "This reaches into FSDP1's internals, of which FSDP2 has none. Say what the code is for: with "
        "FSDP2 each parameter is a DTensor of its own (`p.full_tensor()`, `p.to_local()`), and "
        "`torch.nn.utils.clip_grad_norm_` works on them.",
    ),
    (
        r"_fsdp_wrapped_module",
        "FSDP2 puts nothing between a module and its parent: leave this step of the path out.",
    ),
    (
        r"summon_full_params",
        "Decide what the whole parameters are for. To read one: `p.full_tensor()` on every rank. To save "
        "them: `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))`. To write "
        "them: `set_model_state_dict`. To run the model: `module.unshard()` and `module.reshard()`.",
    ),
    (
        r"`\.(generate|sample)\(\)`",
        "Call `register_fsdp_forward_method(model, 'generate')` after the model is sharded, so that it "
        "gathers the parameters; all ranks have to call it, the same number of times.",
    ),
    (
        r"`\.forward` of a part",
        "Do this inside of the model's forward, for instance in a hook of the part "
        "(`part.register_forward_hook`) that changes what it returns.",
    ),
    (
        r"outside of its forward|`forward` .*taken as a function",
        "Decide how this code gets whole parameters: through `forward` (add an argument that chooses "
        "what it does), or by `register_fsdp_forward_method(model, NAME)` after the model is sharded.",
    ),
    (
        r"a wrapped model is copied",
        "Copy the model before it is wrapped and wrap both, or keep the copy as a state dict: FSDP2's "
        "modules cannot be copied.",
    ),
    (
        r"optimizer is built before the model is wrapped",
        "Build the optimizer (and what reads its groups, as schedulers do) after the model is wrapped: "
        "FSDP2 puts new parameters in place of the old ones.",
    ),
    (
        r"which device is this rank's",
        "Call `torch.cuda.set_device(local_rank)` before the model is moved or wrapped, or pass "
        "`device_id`: FSDP2 puts the model on the current device.",
    ),
    (
        r"process_group",
        "If the group holds all ranks, leave `process_group` out. Otherwise decide on the mesh: one "
        "dimension for sharding, or two (replicate, shard), as `init_device_mesh` builds them.",
    ),
    (
        r"ignored_(states|modules)",
        "Decide what becomes of these parameters: those in `fully_shard(ignored_params=...)` are "
        "neither sharded nor reduced. Freeze them where that can be seen, in every configuration. If the "
        "program trains them and reduces their gradients itself, give them a parameter group of their "
        "own in the optimizer, and clip their gradients apart from the others.",
    ),
    (
        r"quantized weights",
        "Check that your version of the library supports FSDP2 (its parameters need all-gather "
        "extensions), and migrate by hand; or stay with FSDP1 for quantized models.",
    ),
    (
        r"CustomPolicy",
        "Write the policy as a function that returns True or False; what it gives other arguments "
        "to is sharded with these by hand.",
    ),
    (
        r"enable_wrap|`wrap`",
        "Replace `enable_wrap` and `wrap` by a policy (`ModuleWrapPolicy`) for the classes that are "
        "wrapped, or by FSDP(...) of each of these modules; then run this again.",
    ),
    (
        r"class is passed as an argument|class .*(argument|passed)",
        "Call FSDP(...) where the class is handed over, or put the model's wrapping into one place.",
    ),
    (
        r"on the meta device without `param_init_fn`, ",
        "Give FSDP(...) a `param_init_fn`, or give the model its weights by hand before it is wrapped "
        "(`model.to_empty(device=...)`, then its own initialisation); then run this again.",
    ),
    (
        r"param_init_fn",
        "Decide how a model on the meta device gets its values: shard it, then `to_empty(device=...)`, "
        "then its own initialisation or the checkpoint. Buffers have to be filled, too.",
    ),
    (
        r"sync_module_states",
        "Decide whether the ranks start from the same weights anyway (the same seed, or all load the "
        "same file); then leave `sync_module_states` out. Otherwise broadcast them before wrapping.",
    ),
    (
        r"lambda, a comprehension or a conditional|head of a compound|several targets",
        "Give the wrapping a statement of its own: `model = FSDP(model, ...)`.",
    ),
    # Precision and buffers.
    (
        r"batch norm",
        "Decide in which type the batch norms compute. FSDP1 keeps them in float32; with FSDP2 that is "
        "`fully_shard(norm, mp_policy=MixedPrecisionPolicy())` for each of them before their parents.",
    ),
    (
        r"buffer_dtype",
        "Decide in which type the buffers are to be. FSDP2 leaves them alone: cast them where the model "
        "is built, and take `buffer_dtype` out.",
    ),
    (
        r"keep_low_precision_grads|_module_classes_to_ignore|cast_(root_)?forward_inputs",
        "Leave the option out if its default will do, or give these modules a `fully_shard` with a "
        "`MixedPrecisionPolicy` of their own.",
    ),
    # States and checkpoints.
    (
        r"LOCAL_STATE_DICT",
        "Choose another type first, in the FSDP1 program: FULL_STATE_DICT (one file) or "
        "SHARDED_STATE_DICT (each rank writes its part). Where the program itself both saves and loads "
        "local states, they become sharded ones by themselves. Local checkpoints can only be read by "
        "the FSDP1 program, with as many ranks: convert those that you keep.",
    ),
    (
        r"which of several types",
        "Say it where the state is taken: `with FSDP.state_dict_type(model, ...):` around it.",
    ),
    (
        r"takes the state by itself",
        "Take the whole state first (`get_model_state_dict` with `full_state_dict=True, "
        "cpu_offload=True` on all ranks) and hand it over: `save_pretrained(..., state_dict=state)` "
        "on rank 0.",
    ),
    (
        r"one rank's part of the optimizer's state",
        "Decide what the file is to hold. Today it is one rank's part. Take the state on every rank "
        "(`FSDP.optim_state_dict`), or give each rank a file of its own; then run this again.",
    ),
    (
        r"reads a checkpoint as FSDP1 writes it",
        "Decide whether such checkpoints are still to be read: load the state with "
        "`torch.distributed.checkpoint.load` into `get_optimizer_state_dict(...)`, and give it to "
        "`set_optimizer_state_dict`.",
    ),
    (
        r"module inside of FSDP1's",
        "Decide what the file is to hold: take the state of the wrapped model, and not of what it wraps.",
    ),
    (
        r"loaded by one rank only",
        "Load it on every rank: setting a state is a collective in FSDP2.",
    ),
    (
        r"model of this optimizer is not in sight",
        "Hand the model to this function as well: the states of FSDP2's optimizers are taken and loaded "
        "together with the model (`get_optimizer_state_dict(model, optimizer)`).",
    ),
    (
        r"takes FSDP1's own|a config of local state dicts",
        "Leave FSDP1's object out of this call, or replace what takes it: nothing of FSDP2 reads it.",
    ),
    (
        r"`state_dict_type` (that is not the|is returned)|`set_state_dict_type`",
        "Write it as `with FSDP.state_dict_type(model, ...):` around the lines that take or load the "
        "state, a block for each kind of state.",
    ),
    (
        r"state is computed in the call",
        "Give the state a variable of its own, before the call.",
    ),
    # Gradients.
    (
        r"part of the (parameters or )?gradients",
        "With FSDP2 `p` and `p.grad` are DTensors. For a norm use `torch.nn.utils.clip_grad_norm_` or "
        "`get_total_norm` (over all ranks: take the all_reduce away, and call `.full_tensor()` to print "
        "it); for a sum, mean or max `.full_tensor()` of the result; `p.grad.to_local()` where this "
        "rank's part is meant.",
    ),
    (
        r"no_sync",
        "Write it as `with model.no_sync():` around the forward and backward that are not to reduce, or "
        "use `model.set_requires_gradient_sync(...)` by hand.",
    ),
    (
        r"ShardedGradScaler",
        "Leave the additional argument out if it says what holds anyway: `torch.amp.GradScaler` has no "
        "process group.",
    ),
    # Values and forms.
    (
        r"NO_SHARD together",
        "Decide between replicating (leave the mesh out) and sharding over this mesh.",
    ),
    (
        r"polic(y|ies)",
        "Write the policy where FSDP(...) is called, from classes that can be read there: "
        "`auto_wrap_policy=ModuleWrapPolicy({Block})`.",
    ),
    (
        r"^where the arguments in `\*\*",
        "Write the keywords in this call itself; then run this again.",
    ),
    (
        r"run time|cannot be read|cannot be told|comes? from cannot be seen|is made cannot be seen",
        "Write the value out here (a literal, or a name that is assigned once, in these files), so "
        "that it can be read; or rewrite this call by hand.",
    ),
    (
        r"cannot be seen|not in sight",
        "Name the file that this code is in as well, or do here in plain sight what it does; then run "
        "this again.",
    ),
    (
        r"in other configurations|in some configurations|under a condition|several branches",
        "Decide which of the ways stays. Where both do, give each a call of its own, so that what is "
        "said of FSDP1 stands in the branch that uses it.",
    ),
    (
        r"the arguments in `.*used here in another way",
        "Keep the dict for the call of FSDP(...): leave this use out, or hand it a copy that was made "
        "before (`dict(...)`) of what is to be shown.",
    ),
    (
        r"several places|used (here |elsewhere )?(in another way|too)|for two kinds",
        "Give each use an object of its own, made where it is used.",
    ),
    (
        r"further arguments|with arguments|optim_input|with a group",
        "Leave the additional arguments out if they say what holds anyway; otherwise rewrite this call "
        "by hand.",
    ),
    (
        r"same key twice|in a dict of arguments|a partial of FSDP",
        "Write the arguments out where FSDP(...) is called, each of them once.",
    ),
    (
        r"process groups of different kinds|together with a mesh",
        "Give each model a `device_mesh` (with FSDP1 it may have one, too), so that it is plain over "
        "which ranks each one is sharded.",
    ),
    (
        r"has no forward",
        "Wrap the modules in it, or the module that holds it.",
    ),
    (
        r"fsdp_modules",
        "Say what the list is for: the modules that FSDP2 shards are those of `model.modules()` that "
        "are instances of `FSDPModule`, and they have no attributes of FSDP1's wrapper.",
    ),
    (
        r"names are searched for",
        "Search for the plain name: FSDP2 puts nothing into the names of parameters and modules.",
    ),
    (
        r"an assignment to `\.",
        "Do without it: FSDP2 has no wrapper. What is assigned to the inner module belongs on the model "
        "itself, before it is sharded.",
    ),
    (
        r"taken as a function",
        "Call it where it is named, or put the call into a function of your own and hand that over.",
    ),
    (
        r"get into each other's way",
        "Put the uses that stand in one statement into statements of their own.",
    ),
)
OTHERWISE = "Rewrite this code for FSDP2 by hand, or take it out; then run this again."


def advice_on(blocked: Blocked) -> str:
    """What a person has to decide or do about a blocker."""
    if blocked.advice:
        return blocked.advice
    for pattern, advice in KINDS:
        if re.search(pattern, blocked.reason):
            return advice
    return OTHERWISE
