"""What a person has to decide or do, for blockers that share it."""

NAME_FILE = "Name that file as well, or the folder that holds all of them."
LOOK_UP_FUNCTION = (
    "Look up what this function does with FSDP1's wrapper. If it is yours, name its file as "
    "well; if it is a library's, take its counterpart for FSDP2 (or leave the call out), and run "
    "this again."
)
NAME_PROGRAM = (
    "Nothing that could be followed leads here. Take it out if it is dead; otherwise name the "
    "program (or config) that comes here as well."
)
TAKE_HERE = (
    "Take or load the state in this block itself, or inside of the function that it calls with a "
    "`state_dict_type` of its own; then the two stand together and are rewritten."
)
IMPORT_NAMES = "Import the names that are used."
ASK_DISTRIBUTED = (
    "Ask torch.distributed instead: `dist.get_rank()`, `dist.get_world_size()`, "
    "`dist.group.WORLD`, or the group that the model was given. This is right with FSDP1, too, "
    "so it can be done first."
)
KEEP_IN_VARIABLE = (
    "Keep what the model was wrapped with in a variable of the program (the device: "
    "`torch.device('cuda', torch.cuda.current_device())`), and read that. This is right with "
    "FSDP1, too, so it can be done first."
)
APPLY_BEFORE = (
    "Call `apply` on the module before it is wrapped, where the parameters are whole. On a "
    "module that `fully_shard` shards it gets DTensors."
)
COMM_HOOK = (
    "Decide what becomes of the hook: for lower precision, `reduce_dtype` of "
    "MixedPrecisionPolicy; for anything else `set_all_reduce_hook` (torch 2.7) or "
    "`set_custom_reduce_scatter` (torch 2.9), written anew."
)
FLAT_PARAMETERS = (
    "This reaches into FSDP1's internals, of which FSDP2 has none. Say what the code is for: "
    "with FSDP2 each parameter is a DTensor of its own (`p.full_tensor()`, `p.to_local()`), and "
    "`torch.nn.utils.clip_grad_norm_` works on them."
)
LEAVE_STEP_OUT = (
    "FSDP2 puts nothing between a module and its parent: leave this step of the path out."
)
WHOLE_PARAMETERS = (
    "Decide what the whole parameters are for. To read one: `p.full_tensor()` on every rank. To "
    "save them: `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))`. "
    "To write them: `set_model_state_dict`. To run the model: `module.unshard()` and "
    "`module.reshard()`."
)
REGISTER_METHOD = (
    "Call `register_fsdp_forward_method(model, 'generate')` after the model is sharded, so that "
    "it gathers the parameters; all ranks have to call it, the same number of times."
)
HOOK_OF_PART = (
    "Do this inside of the model's forward, for instance in a hook of the part "
    "(`part.register_forward_hook`) that changes what it returns."
)
FORWARD_METHOD = (
    "Decide how this code gets whole parameters: through `forward` (add an argument that chooses "
    "what it does), or by `register_fsdp_forward_method(model, NAME)` after the model is sharded."
)
COPY_BEFORE = (
    "Copy the model before it is wrapped and wrap both, or keep the copy as a state dict: "
    "FSDP2's modules cannot be copied."
)
OPTIMIZER_AFTER = (
    "Build the optimizer (and what reads its groups, as schedulers do) after the model is "
    "wrapped: FSDP2 puts new parameters in place of the old ones."
)
SET_DEVICE = (
    "Call `torch.cuda.set_device(local_rank)` before the model is moved or wrapped, or pass "
    "`device_id`: FSDP2 puts the model on the current device."
)
CHOOSE_MESH = (
    "If the group holds all ranks, leave `process_group` out. Otherwise decide on the mesh: one "
    "dimension for sharding, or two (replicate, shard), as `init_device_mesh` builds them."
)
IGNORED = (
    "Decide what becomes of these parameters: those in `fully_shard(ignored_params=...)` are "
    "neither sharded nor reduced. Freeze them where that can be seen, in every configuration. If "
    "the program trains them and reduces their gradients itself, give them a parameter group of "
    "their own in the optimizer, and clip their gradients apart from the others."
)
QUANTIZED = (
    "Check that your version of the library supports FSDP2 (its parameters need all-gather "
    "extensions), and migrate by hand; or stay with FSDP1 for quantized models."
)
PREDICATE = (
    "Write the policy as a function that returns True or False; what it gives other arguments to "
    "is sharded with these by hand."
)
REPLACE_ENABLE_WRAP = (
    "Replace `enable_wrap` and `wrap` by a policy (`ModuleWrapPolicy`) for the classes that are "
    "wrapped, or by FSDP(...) of each of these modules; then run this again."
)
WRAP_IN_ONE_PLACE = (
    "Call FSDP(...) where the class is handed over, or put the model's wrapping into one place."
)
GIVE_INIT_FN = (
    "Give FSDP(...) a `param_init_fn`, or give the model its weights by hand before it is "
    "wrapped (`model.to_empty(device=...)`, then its own initialisation); then run this again."
)
META_VALUES = (
    "Decide how a model on the meta device gets its values: shard it, then "
    "`to_empty(device=...)`, then its own initialisation or the checkpoint. Buffers have to be "
    "filled, too."
)
SYNC_STATES = (
    "Decide whether the ranks start from the same weights anyway (the same seed, or all load the "
    "same file); then leave `sync_module_states` out. Otherwise broadcast them before wrapping."
)
OWN_STATEMENT = "Give the wrapping a statement of its own: `model = FSDP(model, ...)`."
BATCH_NORM = (
    "Decide in which type the batch norms compute. FSDP1 keeps them in float32; with FSDP2 that "
    "is `fully_shard(norm, mp_policy=MixedPrecisionPolicy())` for each of them before their "
    "parents."
)
BUFFER_DTYPE = (
    "Decide in which type the buffers are to be. FSDP2 leaves them alone: cast them where the "
    "model is built, and take `buffer_dtype` out."
)
PRECISION_OPTION = (
    "Leave the option out if its default will do, or give these modules a `fully_shard` with a "
    "`MixedPrecisionPolicy` of their own."
)
LOCAL_STATE = (
    "Choose another type first, in the FSDP1 program: FULL_STATE_DICT (one file) or "
    "SHARDED_STATE_DICT (each rank writes its part). Where the program itself both saves and "
    "loads local states, they become sharded ones by themselves. Local checkpoints can only be "
    "read by the FSDP1 program, with as many ranks: convert those that you keep."
)
SAY_TYPE = "Say it where the state is taken: `with FSDP.state_dict_type(model, ...):` around it."
HAND_OVER_STATE = (
    "Take the whole state first (`get_model_state_dict` with `full_state_dict=True, "
    "cpu_offload=True` on all ranks) and hand it over: `save_pretrained(..., state_dict=state)` "
    "on rank 0."
)
ONE_RANKS_PART = (
    "Decide what the file is to hold. Today it is one rank's part. Take the state on every rank "
    "(`FSDP.optim_state_dict`), or give each rank a file of its own; then run this again."
)
READ_OLD_CHECKPOINT = (
    "Decide whether such checkpoints are still to be read: load the state with "
    "`torch.distributed.checkpoint.load` into `get_optimizer_state_dict(...)`, and give it to "
    "`set_optimizer_state_dict`."
)
STATE_OF_WRAPPED = (
    "Decide what the file is to hold: take the state of the wrapped model, and not of what it "
    "wraps."
)
LOAD_EVERYWHERE = "Load it on every rank: setting a state is a collective in FSDP2."
HAND_MODEL_OVER = (
    "Hand the model to this function as well: the states of FSDP2's optimizers are taken and "
    "loaded together with the model (`get_optimizer_state_dict(model, optimizer)`)."
)
LEAVE_OBJECT_OUT = (
    "Leave FSDP1's object out of this call, or replace what takes it: nothing of FSDP2 reads it."
)
WITH_BLOCK = (
    "Write it as `with FSDP.state_dict_type(model, ...):` around the lines that take or load the "
    "state, a block for each kind of state."
)
STATE_VARIABLE = "Give the state a variable of its own, before the call."
GRADIENT_PARTS = (
    "With FSDP2 `p` and `p.grad` are DTensors. For a norm use `torch.nn.utils.clip_grad_norm_` "
    "or `get_total_norm` (over all ranks: take the all_reduce away, and call `.full_tensor()` to "
    "print it); for a sum, mean or max `.full_tensor()` of the result; `p.grad.to_local()` where "
    "this rank's part is meant."
)
NO_SYNC_BLOCK = (
    "Write it as `with model.no_sync():` around the forward and backward that are not to reduce, "
    "or use `model.set_requires_gradient_sync(...)` by hand."
)
SCALER_ARGUMENT = (
    "Leave the additional argument out if it says what holds anyway: `torch.amp.GradScaler` has "
    "no process group."
)
WRITE_POLICY = (
    "Write the policy where FSDP(...) is called, from classes that can be read there: "
    "`auto_wrap_policy=ModuleWrapPolicy({{Block}})`."
)
WRITE_KEYWORDS = "Write the keywords in this call itself; then run this again."
WRITE_VALUE = (
    "Write the value out here (a literal, or a name that is assigned once, in these files), so "
    "that it can be read; or rewrite this call by hand."
)
NAME_CODE = (
    "Name the file that this code is in as well, or do here in plain sight what it does; then "
    "run this again."
)
CHOOSE_WAY = (
    "Decide which of the ways stays. Where both do, give each a call of its own, so that what is "
    "said of FSDP1 stands in the branch that uses it."
)
KEEP_DICT = (
    "Keep the dict for the call of FSDP(...): leave this use out, or hand it a copy that was "
    "made before (`dict(...)`) of what is to be shown."
)
OWN_OBJECTS = "Give each use an object of its own, made where it is used."
DROP_ARGUMENTS = (
    "Leave the additional arguments out if they say what holds anyway; otherwise rewrite this "
    "call by hand."
)
WRITE_ARGUMENTS = "Write the arguments out where FSDP(...) is called, each of them once."
GIVE_MESH = (
    "Give each model a `device_mesh` (with FSDP1 it may have one, too), so that it is plain over "
    "which ranks each one is sharded."
)
WRAP_CHILDREN = "Wrap the modules in it, or the module that holds it."
FSDP_MODULES = (
    "Say what the list is for: the modules that FSDP2 shards are those of `model.modules()` that "
    "are instances of `FSDPModule`, and they have no attributes of FSDP1's wrapper."
)
NO_WRAPPER = (
    "Do without it: FSDP2 has no wrapper. What is assigned to the inner module belongs on the "
    "model itself, before it is sharded."
)
CALL_HERE = (
    "Call it where it is named, or put the call into a function of your own and hand that over."
)
SEPARATE_STATEMENTS = "Put the uses that stand in one statement into statements of their own."
BY_HAND = "Rewrite this code for FSDP2 by hand, or take it out; then run this again."
