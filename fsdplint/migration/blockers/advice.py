"""What a person has to decide or do, for blockers that share it."""

NAME_FILE = "Name that file as well, or the folder that holds all files."
LOOK_UP_FUNCTION = (
    "Find out what this function does with FSDP1's wrapper. If the function is yours, name its "
    "file as well. If it is a library's, call its counterpart for FSDP2, or remove the call. Then "
    "run this again."
)
NAME_PROGRAM = (
    "No code that was followed runs this. Remove it if it is dead; otherwise name the program (or "
    "config) that runs it as well."
)
TAKE_HERE = (
    "Take or load the state in this block itself, or in the called function with a "
    "`state_dict_type` block of its own. The rewrite needs both in one place."
)
IMPORT_NAMES = "Import the names that the code uses."
ASK_DISTRIBUTED = (
    "Use torch.distributed instead: `dist.get_rank()`, `dist.get_world_size()`, "
    "`dist.group.WORLD`, or the group that the model was given. This works with FSDP1, too, so it "
    "can be done first."
)
KEEP_IN_VARIABLE = (
    "Keep the argument of FSDP(...) in a variable of the program (the device: "
    "`torch.device('cuda', torch.cuda.current_device())`), and read the variable. This works with "
    "FSDP1, too, so it can be done first."
)
APPLY_BEFORE = (
    "Call `apply` on the module before it is wrapped, while its parameters are whole. On a module "
    "that `fully_shard` shards, the function gets DTensors."
)
COMM_HOOK = (
    "Decide what replaces the hook. For lower precision use `reduce_dtype` of "
    "MixedPrecisionPolicy. For anything else write a new hook for `set_all_reduce_hook` (torch "
    "2.7) or `set_custom_reduce_scatter` (torch 2.9)."
)
FLAT_PARAMETERS = (
    "This code uses FSDP1's internals, which FSDP2 does not have. Decide what the code is for: "
    "with FSDP2 each parameter is a DTensor of its own (`p.full_tensor()`, `p.to_local()`), and "
    "`torch.nn.utils.clip_grad_norm_` works on them."
)
LEAVE_STEP_OUT = (
    "Remove this step from the path: FSDP2 puts nothing between a module and its parent."
)
WHOLE_PARAMETERS = (
    "Decide what the whole parameters are for. To read one: `p.full_tensor()` on every rank. To "
    "save them: `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))`. To "
    "write them: `set_model_state_dict`. To run the model: `module.unshard()` and "
    "`module.reshard()`."
)
REGISTER_METHOD = (
    "Let all ranks call the method, the same number of times, and use the result on one of them; "
    "then run this again."
)
HOOK_OF_PART = (
    "Do this inside of the model's forward, for instance in a hook of the part "
    "(`part.register_forward_hook`) that changes the part's output."
)
FORWARD_METHOD = (
    "Decide how this code gets whole parameters: through `forward` (add an argument that selects "
    "what it does), or by `register_fsdp_forward_method(model, NAME)` after the model is sharded."
)
COPY_BEFORE = (
    "Copy the model before it is wrapped and wrap both, or keep the copy as a state dict: "
    "FSDP2's modules cannot be copied."
)
OPTIMIZER_AFTER = (
    "Build the optimizer after the model is wrapped, and then the schedulers and other code that "
    "reads its groups: FSDP2 puts new parameters in place of the old ones."
)
SET_DEVICE = (
    "Call `torch.cuda.set_device(local_rank)` before the model is moved or wrapped, or pass "
    "`device_id`: FSDP2 puts the model on the current device."
)
CHOOSE_MESH = (
    "If the group holds all ranks, remove `process_group`. Otherwise choose a mesh: one dimension "
    "for sharding, or two (replicate, shard), as `init_device_mesh` builds them."
)
IGNORED = (
    "Decide what happens to these parameters: `fully_shard(ignored_params=...)` neither shards "
    "them nor reduces their gradients. If they are frozen, freeze them where this can be seen, in "
    "every configuration. If the program trains them and reduces their gradients itself, give "
    "them a parameter group of their own in the optimizer, and clip their gradients separately."
)
SHARD_THE_REST = (
    "Wrap the whole model as well, after its parts: this shards the other parameters, and reduces "
    "their gradients, which nothing does now. If they are to stay whole, give them an optimizer of "
    "their own, and clip them separately."
)
QUANTIZED = (
    "Check that your version of the library supports FSDP2 (its parameters need all-gather "
    "extensions), and migrate by hand; or stay with FSDP1 for quantized models."
)
PREDICATE = (
    "Write the policy as a function that returns True or False. Shard by hand the modules that "
    "get other arguments."
)
REPLACE_ENABLE_WRAP = (
    "Replace `enable_wrap` and `wrap` by a policy (`ModuleWrapPolicy`) for the wrapped classes, "
    "or by FSDP(...) of each wrapped module; then run this again."
)
WRAP_IN_ONE_PLACE = (
    "Call FSDP(...) where the class is passed, or put the model's wrapping into one place."
)
GIVE_INIT_FN = (
    "Give FSDP(...) a `param_init_fn`, or initialize the model by hand before it is wrapped "
    "(`model.to_empty(device=...)`, then its own initialisation); then run this again."
)
META_VALUES = (
    "Decide how a model on the meta device gets its values: shard it, call "
    "`to_empty(device=...)`, then run its own initialisation or load the checkpoint. Buffers need "
    "values, too."
)
SYNC_STATES = (
    "Find out whether the ranks start from the same weights anyway (the same seed, or all load "
    "the same file). If so, remove `sync_module_states`. Otherwise broadcast the weights before "
    "wrapping."
)
OWN_STATEMENT = "Give the wrapping a statement of its own: `model = FSDP(model, ...)`."
BATCH_NORM = (
    "Decide in which type the batch norms compute. FSDP1 keeps them in float32. For the same with "
    "FSDP2, call `fully_shard(norm, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float32, "
    "output_dtype=...))` on each of them before their parents, with the type in which the other "
    "modules compute."
)
BUFFER_DTYPE = (
    "Decide which type the buffers get. FSDP2 does not cast them: cast them where the model is "
    "built, and remove `buffer_dtype`."
)
PRECISION_OPTION = (
    "Remove the option if its default will do, or call `fully_shard` on these modules with a "
    "`MixedPrecisionPolicy` of their own."
)
LOW_PRECISION_GRADS = (
    "Remove the option if gradients of the type of the parameters will do, which FSDP2 gives. For "
    "gradients in low precision, cast the model to that type before it is sharded."
)
LOCAL_STATE = (
    "First choose another type in the FSDP1 program: FULL_STATE_DICT (one file) or "
    "SHARDED_STATE_DICT (each rank writes its part). If the program both saves and loads local "
    "states, the migration makes them sharded ones. Only the FSDP1 program can read local "
    "checkpoints, with the same number of ranks: convert those that you keep."
)
SHARDED_FILES = (
    "Decide which files this program reads. Those that FSDP1 wrote need FSDP1: leave the program as "
    "it is until they are converted. For new files, write and read the sharded state with "
    "`torch.distributed.checkpoint`, which both versions can load."
)
SAY_TYPE = (
    "Set the type where the state is taken: `with FSDP.state_dict_type(model, ...):` around it."
)
HAND_OVER_STATE = (
    "First take the whole state (`get_model_state_dict` with `full_state_dict=True, "
    "cpu_offload=True` on all ranks). Then pass it on rank 0: `save_pretrained(..., "
    "state_dict=state)`."
)
ONE_RANKS_PART = (
    "Decide what the file is to hold. Today it holds one rank's part. Take the state on every "
    "rank (`FSDP.optim_state_dict`), or give each rank a file of its own; then run this again."
)
READ_OLD_CHECKPOINT = (
    "Decide whether the program still has to read such checkpoints. If so, load the state with "
    "`torch.distributed.checkpoint.load` into `get_optimizer_state_dict(...)`, and pass it to "
    "`set_optimizer_state_dict`."
)
STATE_OF_WRAPPED = (
    "Take the state of the wrapped model, not of the module inside of it. If the file is to hold "
    "another state, write this by hand."
)
LOAD_EVERYWHERE = "Load it on every rank: in FSDP2 all ranks set a state together."
HAND_MODEL_OVER = (
    "Pass the model to this function as well: FSDP2 takes and loads the state of an optimizer "
    "together with its model (`get_optimizer_state_dict(model, optimizer)`)."
)
LEAVE_OBJECT_OUT = (
    "Remove FSDP1's object from this call, or replace the code that gets it: nothing in FSDP2 "
    "reads it."
)
WITH_BLOCK = (
    "Write it as `with FSDP.state_dict_type(model, ...):` around the lines that take or load the "
    "state, a block for each kind of state."
)
GRADIENT_PARTS = (
    "With FSDP2 `p` and `p.grad` are DTensors. For a norm use `torch.nn.utils.clip_grad_norm_` or "
    "`get_total_norm`: they cover all ranks, so remove the all_reduce, and call `.full_tensor()` "
    "to print the norm. For a sum, mean or max call `.full_tensor()` on the result. For this "
    "rank's part use `p.grad.to_local()`."
)
NO_SYNC_BLOCK = (
    "Write it as `with model.no_sync():` around the forward and backward that do not reduce "
    "gradients, or call `model.set_requires_gradient_sync(...)` by hand."
)
SCALER_ARGUMENT = (
    "Remove the additional argument if the scaler does the same without it: "
    "`torch.amp.GradScaler` has no process group."
)
WRITE_POLICY = (
    "Write the policy where FSDP(...) is called, with classes that are named there: "
    "`auto_wrap_policy=ModuleWrapPolicy({{Block}})`."
)
WRITE_PARALLELIZE = (
    'Write a function that shards a model with `fully_shard`, over `mesh["data_parallel"]`, and give '
    "it to `ModelParallelStrategy(parallelize_fn=..., data_parallel_size=<all devices>, "
    "tensor_parallel_size=1)`."
)
WRITE_CONFIGURE_MODEL = (
    "Write `configure_model` in the LightningModule. It shards the module with `fully_shard`, over "
    '`self.device_mesh["data_parallel"]`, and registers each step by `register_fsdp_forward_method`.'
)
WRITE_KEYWORDS = "Write the keywords in this call itself; then run this again."
WRITE_VALUE = (
    "Write the value here as a literal, or as a name that is assigned once in these files; or "
    "rewrite this call by hand."
)
NAME_CODE = "Name the file of this code as well, or write its steps out here; then run this again."
CHOOSE_WAY = (
    "Decide which of the ways remains. To keep both, give each a call of its own, so that the "
    "arguments of FSDP1 stand in the branch that uses it."
)
KEEP_DICT = (
    "Use the dict in the call of FSDP(...) only: remove this use, or give it a copy that was made "
    "before (`dict(...)`)."
)
OWN_OBJECTS = "Give each use an object of its own, made where it is used."
DROP_ARGUMENTS = (
    "Remove the additional arguments if the call does the same without them; otherwise rewrite "
    "this call by hand."
)
WRITE_ARGUMENTS = "Write the arguments out where FSDP(...) is called, each of them once."
GIVE_MESH = (
    "Give each model a `device_mesh` (FSDP1 accepts one, too), so that the code shows over which "
    "ranks each model is sharded."
)
WRAP_CHILDREN = "Wrap the modules inside of it, or the module that holds it."
FSDP_MODULES = (
    "Decide what the list is for. The modules that FSDP2 shards are the instances of `FSDPModule` "
    "in `model.modules()`. They have no attributes of FSDP1's wrapper."
)
NO_WRAPPER = "Assign to the model itself, before it is sharded: FSDP2 has no wrapper."
CALL_HERE = "Call the method here, or pass a function of your own that calls it."
SEPARATE_STATEMENTS = "Give each use of FSDP1 here a statement of its own."
TOO_LARGE = (
    "Give fsdplint the files of one program only, or put constants in place of the settings that "
    "choose among models; then run this again. Or migrate by hand, and compare with `fsdplint "
    "validate BEFORE AFTER`."
)
BY_HAND = "Rewrite this code for FSDP2 by hand, or remove it; then run this again."
