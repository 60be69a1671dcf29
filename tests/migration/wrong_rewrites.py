"""Mistakes planted into the rewrites that the planner makes of the fixtures.

Each is a fixture, and replacements in the text that its migration gives.
"""

from __future__ import annotations

Edits = tuple[tuple[str, str], ...]

_CONV = "        if isinstance(module, Conv):\n            fully_shard(module, mesh=mesh)\n"
_BLOCKS = "        if isinstance(module, ResidualBlock):\n            fully_shard(module, **fsdp_kwargs)\n"
_LOOP = f"    for module in reversed(list(model.modules())):\n{_BLOCKS}"
_HYBRID = "init_device_mesh(\n        device.type, (args.replicas, world // args.replicas), mesh_dim_names=('replicate', 'shard')\n    )"
_ARGPARSE = "fsdp1/argparse_functions.py"
_MESH = "fsdp1/device_mesh.py"
_FLAT = "fsdp1/flat_script.py"
_LAYERS = "fsdp1/wrap_layers.py"
_NESTED = "fsdp1/nested_precision.py"
_TRAINER = "fsdp1/trainer_class.py"
_FROZEN = "fsdp1/frozen_states.py"
_LORA = "fsdp1/lambda_policy.py"
_LEGACY = "fsdp1/legacy_optim.py"
_SCALER = "fsdp1_cuda/scaler_accumulation.py"
_META = "fsdp1_cuda/meta_init.py"
_OFFLOADED = "fsdp1/offloaded_activations.py"
_UNITS = "fsdp1/unit_arguments.py"
_REPLICATED = "fsdp1/no_shard.py"
_FLAT_LOOP = "for module in reversed(list(model.modules())):\n    if isinstance(module, Block):\n        fully_shard(module)\n"
_FLAT_ROOT = "fully_shard(model)\n"
_FLAT_ADAM = "optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)\n"
_FLAT_CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM).full_tensor()"
_FLAT_STATE = "full_state = get_model_state_dict(model, options=save_policy)\n"
_LORA_LOOP = "	for module in reversed(list(net.modules())[1:]):\n		if should_shard(module):\n			fully_shard(module)\n"

WRONG: dict[str, tuple[str, Edits]] = {
    # Units and their order
    "no unit but the root": (_ARGPARSE, ((_LOOP, ""),)),
    "the root is not sharded": (_ARGPARSE, (("return fully_shard(model, **fsdp_kwargs)", "return model"),)),
    "the root first": (_ARGPARSE, (
        (_LOOP, f"    fully_shard(model, **fsdp_kwargs)\n{_LOOP}"),
        ("return fully_shard(model, **fsdp_kwargs)", "return model"),
    )),
    "the root twice": (_FLAT, ((_FLAT_ROOT, _FLAT_ROOT * 2),)),
    "another class": (_ARGPARSE, (("isinstance(module, ResidualBlock)", "isinstance(module, nn.Linear)"),)),
    "parts of the blocks, too": (_MESH, (("isinstance(module, Conv)", "isinstance(module, (Conv, nn.Conv1d))"),)),
    "a block is left out": (_LAYERS, (("  fully_shard(model.upper, reshard_after_forward=False)\n", ""),)),
    "another module in its place": (_LAYERS, (("fully_shard(model.upper,", "fully_shard(model.leave,"),)),
    "one group of two blocks": (_LAYERS, (
        ("  fully_shard(model.lower, reshard_after_forward=False)\n", ""),
        ("fully_shard(model.upper,", "fully_shard([model.lower, model.upper],"),
    )),
    "a slice of the blocks": (_LEGACY, (
        ("for module in reversed(list(model.modules())):\n        if isinstance(module, Highway):\n            fully_shard(module)",
         "for module in model.layers[1:]:\n        fully_shard(module)"),
    )),
    "all but the last block": (_NESTED, (("enumerate(net.blocks)", "enumerate(net.blocks[:-1])"),)),
    "the head is not sharded": (_NESTED, (("    fully_shard(net.head, mp_policy=FULL)\n", ""),)),
    "a frozen part is sharded": (_FROZEN, (("isinstance(module, Layer)", "isinstance(module, (Layer, Extractor))"),)),
    # Gathering
    "parameters are freed after the forward": (_LAYERS, ((", reshard_after_forward=False", ""),)),
    "one block keeps other parameters": (_LAYERS, (
        ("fully_shard(model.upper, reshard_after_forward=False)", "fully_shard(model.upper)"),
    )),
    "parameters are kept after the forward": (_FLAT, (("fully_shard(module)", "fully_shard(module, reshard_after_forward=False)"),)),
    "the strategy is negated": (_ARGPARSE, (("== 'SHARD_GRAD_OP'", "!= 'SHARD_GRAD_OP'"),)),
    "offloaded activations, gathered parameters": (_OFFLOADED, (
        ("fully_shard(submodule, reshard_after_forward=False)", "fully_shard(submodule)"),
    )),
    # Mesh
    "no mesh": (_MESH, ((", mesh=mesh", ""),)),
    "no mesh for the root": (_MESH, (("fully_shard(model, mesh=mesh)", "fully_shard(model)"),)),
    "the part of the mesh that shards": (_MESH, ((_HYBRID, f"{_HYBRID}['shard']"), ("(args.replicas, world // args.replicas)", "(2, world // 2)"))),
    "a mesh of one dimension": (_MESH, ((_HYBRID, "init_device_mesh(device.type, (world,))"),)),
    "the dimensions exchanged": (_MESH, (("(args.replicas, world // args.replicas)", "(world // args.replicas, args.replicas)"),)),
    "units without their own strategy": (_UNITS, (('{"reshard_after_forward": False}', "{}"),)),
    "units with the strategy of others": (_UNITS, (("return {} if", 'return {"reshard_after_forward": False} if'),)),
    "replicated parameters are sharded": (_REPLICATED, ((", mesh=mesh", ""),)),
    # Precision
    "no policy": (_TRAINER, ((", mp_policy=mixed_precision", ""),)),
    "no policy for the root": (_NESTED, ((", mp_policy=replace(BF16, cast_forward_inputs=True)", ""),)),
    "the policy of another unit": (_NESTED, (("fully_shard(net.head, mp_policy=FULL)", "fully_shard(net.head, mp_policy=BF16)"),)),
    "another type of parameters": (_NESTED, (("param_dtype=torch.bfloat16", "param_dtype=torch.float16"),)),
    "another type of gradients": (_NESTED, (("param_dtype=torch.bfloat16, reduce_dtype=torch.float32", "param_dtype=torch.bfloat16"),)),
    "outputs are cast": (_SCALER, (("reduce_dtype=config.dtype", "reduce_dtype=config.dtype, output_dtype=torch.float32"),)),
    # Offload and ignored parameters
    "parameters are offloaded": (_FLAT, (
        ("fully_shard(module)", "fully_shard(module, offload_policy=CPUOffloadPolicy())"),
        (" import fully_shard", " import CPUOffloadPolicy, fully_shard"),
    )),
    "no parameter is ignored": (_FROZEN, ((", ignored_params=ignored_params", ""),)),
    # Optimizer
    "the optimizer before sharding": (_FLAT, (
        (_FLAT_ADAM, ""), (_FLAT_LOOP, f"{_FLAT_ADAM}{_FLAT_LOOP}"),
    )),
    "another learning rate": (_FLAT, (("lr=3e-3", "lr=3e-4"),)),
    "no weight decay": (_FLAT, ((", weight_decay=0.01", ""),)),
    "another optimizer": (_FLAT, (("optim.AdamW", "optim.Adam"),)),
    "two optimizers": (_FLAT, ((_FLAT_ADAM, _FLAT_ADAM + _FLAT_ADAM.replace("optimizer", "other")),)),
    "the optimizer of one part": (_LAYERS, (("Adagrad(model.parameters()", "Adagrad(model.lower.parameters()"),)),
    # Clipping
    "no clipping": (_LAYERS, (("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""),)),
    "another bound": (_LAYERS, (("(model.parameters(), 1.0)", "(model.parameters(), 10.0)"),)),
    "clipping on one rank": (_FLAT, ((_FLAT_CLIP, f"{_FLAT_CLIP} if rank == 0 else 0.0"),)),
    "clipping by value": (_META, (("clip_grad_norm_", "clip_grad_value_"),)),
    "clipping after the step": (_LAYERS, (
        ("    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n",
         "    optimizer.step()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"),
    )),
    # Accumulation and scalers
    "gradients are always reduced": (_LORA, (
        ("		fsdp_model.set_requires_gradient_sync(False)\n", ""), ("		fsdp_model.set_requires_gradient_sync(True)\n", ""),
    )),
    "the switch is inverted": (_LORA, (
        ("sync(False)", "sync(None)"), ("sync(True)", "sync(False)"), ("sync(None)", "sync(True)"),
    )),
    "gradients are never reduced": (_LORA, (("		fsdp_model.set_requires_gradient_sync(True)\n", ""),)),
    "the scaler is off": (_SCALER, (("growth_interval=2", "growth_interval=2, enabled=False"),)),
    "another scale": (_SCALER, (("init_scale=config.init_scale", "init_scale=2.0"),)),
    # States and files
    "a sharded state is saved": (_FLAT, ((_FLAT_STATE, "full_state = model.state_dict()\n"),)),
    "the state is not whole": (_FLAT, (("full_state_dict=True, cpu_offload=True", "cpu_offload=True"),)),
    "the state is taken on one rank": (_FLAT, (
        (_FLAT_STATE, ""), ("if rank == 0:\n    os", f"if rank == 0:\n    {_FLAT_STATE}    os"),
    )),
    "every rank writes": (_LAYERS, (
        ("  if dist.get_rank() == 0:\n    os.makedirs(args.out, exist_ok=True)\n", "  if True:\n    os.makedirs(args.out, exist_ok=True)\n"),
    )),
    "nothing is written": (_LAYERS, (("    torch.save(state, os.path.join(args.out, 'stack.pt'))\n", ""),)),
    "another file": (_LAYERS, (("'stack.pt'", "'other.pt'"),)),
    "the state of a part": (_LAYERS, (("get_model_state_dict(model,", "get_model_state_dict(model.lower,"),)),
    "no optimizer state in the file": (_ARGPARSE, (("                'optimizer': optim_state,\n", ""),)),
    "an empty optimizer state": (_ARGPARSE, (("'optimizer': optim_state", "'optimizer': {}"),)),
    "the weights twice": (_ARGPARSE, (("'optimizer': optim_state", "'optimizer': model_state"),)),
    "the model is not loaded": (_LEGACY, (
        ('    set_model_state_dict(\n        model, checkpoint["weights"], options=StateDictOptions(full_state_dict=True)\n    )\n', ""),
    )),
    "the optimizer is not loaded": (_ARGPARSE, (
        ("    set_optimizer_state_dict(\n        model, optimizer, separate_steps(checkpoint['optimizer']), options=options\n    )\n", ""),
    )),
    "a whole state is loaded as shards": (_ARGPARSE, (
        ("set_model_state_dict(model, checkpoint['model'], options=options)", "model.load_state_dict(checkpoint['model'])"),
    )),
    "the weights of rank 0 are not handed out": (_SCALER, (
        ("full_state_dict=True, broadcast_from_rank0=True", "full_state_dict=True"),
    )),
    "a distributed checkpoint becomes a file": (_MESH, (
        ("dcp.save(state, checkpoint_id=folder)", "torch.save(state, folder)"),
    )),
    "another folder": (_MESH, (("'sharded'", "'whole'"),)),
    # Ranks, data, launch
    "a barrier on one rank": (_LEGACY, (("\n    dist.barrier()\n", "\n        dist.barrier()\n"),)),
    "another backend": (_LAYERS, (("'nccl' if cuda else 'gloo'", "'gloo'"),)),
    "a seed for each rank": (_LAYERS, (("torch.manual_seed(21)", "torch.manual_seed(21 + dist.get_rank())"),)),
    "set_epoch is lost": (_ARGPARSE, (("sampler.set_epoch(epoch)", "pass"),)),
    "the sampler is lost": (_ARGPARSE, (("sampler=sampler, drop_last=True", "drop_last=True"),)),
    "activations are not checkpointed": (_OFFLOADED, (
        ("apply_activation_checkpointing(self.net", "(lambda *_, **__: None)(self.net"),
    )),
    "the model is trained in half precision": (_LAYERS, (("model = Stack()", "model = Stack().bfloat16()"),)),
    "another part is frozen": (_FROZEN, (("model.features.requires_grad_(False)", "model.layers.requires_grad_(False)"),)),
    # FSDP1 is left
    "the name of the class is asked for": (_FLAT, (
        (_FLAT_ADAM, _FLAT_ADAM + 'if type(model).__name__ == "FullyShardedDataParallel":\n    print(model)\n'),
    )),
    "the class is taken by its name": (_FLAT, (
        (_FLAT_ADAM, _FLAT_ADAM + 'print(isinstance(model, getattr(torch.distributed.fsdp, "FullyShardedDataParallel")))\n'),
    )),
    "the class is imported while the program runs": (_FLAT, (
        (_FLAT_ADAM, _FLAT_ADAM + 'fsdp = __import__("importlib").import_module("torch.distributed.fsdp")\nprint(isinstance(model, fsdp.FullyShardedDataParallel))\n'),
    )),
    "a branch of FSDP1 is left": (_FLAT, (
        (" import fully_shard", " import FullyShardedDataParallel as FSDP\nfrom torch.distributed.fsdp import fully_shard"),
        (_FLAT_ROOT, 'if os.environ.get("OLD"):\n    model = FSDP(model)\nelse:\n    fully_shard(model)\n'),
    )),
    "a method of the wrapper is left": (_LAYERS, (("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"),)),
    "no_sync is left": (_LORA, (("		fsdp_model.set_requires_gradient_sync(False)\n", "		fsdp_model.no_sync().__enter__()\n"),)),
}  # fmt: skip
