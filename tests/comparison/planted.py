"""Mistakes planted into `programs/after.py`, each with the topic that has to differ."""

from __future__ import annotations

_ROOT = "    fully_shard(model, **options)\n"
_BLOCKS = "    for module in (model.first, model.second):\n        fully_shard(module, **options)\n"
_LAYERS = "(model.first, model.second)"
_SYNC = "            model.set_requires_gradient_sync(False)\n"
_RESUME = "            model.set_requires_gradient_sync(True)\n"
_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.5)"
_CHECKPOINTING = (
    "    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))\n"
)
_OPTIMIZER = "    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)\n"
_SHARD = "    model = shard(Net())\n"
_TAKEN = "        state = get_model_state_dict(model, options=options)\n"
_OPTIONS = "        options = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
_LOADED = 'set_model_state_dict(model, torch.load("last.pt"), options=options)'
_SAVE = '            torch.save(state, "last.pt")\n'
_MESH_1D = 'init_device_mesh("cpu", (dist.get_world_size(),))'
_MESH_2D = 'init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))'
_IMPORT = "import torch.distributed as dist\n"
_MESH_IMPORT = f"{_IMPORT}from torch.distributed.device_mesh import init_device_mesh\n"
_FSDP1 = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
_OLD = '    if os.environ.get("OLD"):\n        return FSDP(model)\n'

Edits = tuple[tuple[str, str], ...]

RIGHT: dict[str, Edits] = {
    "as it is": (),
    "resharded as FSDP1 does": (("        fully_shard(module, **options)", (
        "        fully_shard(module, **options, reshard_after_forward=True)")),),
    "a mesh of all ranks": (
        (_IMPORT, _MESH_IMPORT),
        ('        "mp_policy"', f'        "mesh": {_MESH_1D},\n        "mp_policy"'),
    ),
    "the norm by its name": ((", 0.5)", ", max_norm=0.5, norm_type=2)"),),
    "checkpointing before sharding": (
        (_CHECKPOINTING, ""),
        (_SHARD, f"    model = Net()\n{_CHECKPOINTING}    model = shard(model)\n"),
    ),
    "a loop over modules": ((_LAYERS, "[m for m in model.modules() if isinstance(m, Block)]"),),
    "another name": (("optimizer", "adamw"),),
}  # fmt: skip

PLANTED: dict[str, tuple[str, Edits]] = {
    "the root is not sharded": ("unit", ((_ROOT, ""),)),
    "no unit but the root": ("unit", ((_BLOCKS, ""),)),
    "a unit is missing": ("unit", ((_LAYERS, "(model.first,)"),)),
    "a unit too many": ("unit", ((_LAYERS, "(model.first, model.second, model.head)"),)),
    "units in one group": (
        "modules in one group",
        ((_BLOCKS, "    fully_shard([model.first, model.second], **options)\n"),),
    ),
    "parameters are kept after the forward": (
        "reshard_after_forward",
        (("fully_shard(module, **options", "fully_shard(module, reshard_after_forward=False, **options"),),
    ),
    "another type of parameters": ("param_dtype", (("torch.bfloat16", "torch.float16"),)),
    "another type of gradients": ("reduce_dtype", ((", reduce_dtype=torch.float32", ""),)),
    "no mixed precision": ("param_dtype", (
        ("MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
         "MixedPrecisionPolicy()"),
    )),
    "outputs are cast": ("output_dtype", (
        ("reduce_dtype=torch.float32", "reduce_dtype=torch.float32, output_dtype=torch.float32"),
    )),
    "inputs are not cast": ("cast_forward_inputs", (
        ("reduce_dtype=torch.float32", "reduce_dtype=torch.float32, cast_forward_inputs=False"),
    )),
    "a mesh of two dimensions": ("mesh", (
        (_IMPORT, _MESH_IMPORT),
        ('        "mp_policy"', f'        "mesh": {_MESH_2D},\n        "mp_policy"'),
    )),
    "no offload": (
        "offload to the CPU", (('        "offload_policy": CPUOffloadPolicy(),\n', ""),),
    ),
    "nothing is ignored": (
        "ignored parameters", (('        "ignored_params": set(model.frozen.parameters()),\n', ""),),
    ),
    "no activation checkpointing": ("activation checkpointing", ((_CHECKPOINTING, ""),)),
    "the optimizer before sharding": ("optimizer is built", (
        (_OPTIMIZER, ""),
        (_SHARD, f"    model = Net()\n{_OPTIMIZER}    model = shard(model)\n"),
    )),
    "another optimizer": ("optimizer", (("optim.AdamW", "optim.Adam"),)),
    "another learning rate": ("optimizer lr", (("lr=0.01", "lr=0.001"),)),
    "the default of weight decay": ("optimizer weight_decay", ((", weight_decay=0.1", ""),)),
    "another bound": ("clipping bound", ((", 0.5)", ", 0.505)"),)),
    "another norm": ("norm of clipping", ((", 0.5)", ", 0.5, norm_type=1.0)"),)),
    "by value": ("gradient clipping", ((_CLIP, "nn.utils.clip_grad_value_(model.parameters(), 0.5)"),)),
    "no clipping": ("gradient clipping", ((_CLIP, "pass"),)),
    "clipping after the step": ("order of a step", (
        (f"            {_CLIP}\n", ""),
        ("            scaler.update()\n", f"            scaler.update()\n            {_CLIP}\n"),
    )),
    "gradients are always reduced": ("reduction of gradients", ((_SYNC, ""), (_RESUME, ""))),
    "gradients are never reduced": ("reduction of gradients", ((_RESUME, ""),)),
    "the gradients of a part are clipped": ("parameters that are clipped", (
        (_CLIP, "nn.utils.clip_grad_norm_(model.head.parameters(), 0.5)"),
    )),
    "the reduction of the root alone is paused": ("reduction of gradients is paused for", (
        ("sync(False)", "sync(False, recurse=False)"),
    )),
    "the reduction of a part is paused": ("reduction of gradients is paused for", (
        (_SYNC, _SYNC.replace("model", "model.first")),
    )),
    "gradients are not set to zero": ("gradients are set to zero", (
        ("            optimizer.zero_grad()\n", ""),
    )),
    "the gradients of a pass are set to zero": ("gradients of a pass are set to zero", (
        ("            optimizer.zero_grad()\n", ""),
        ("            scaler.unscale_", "            optimizer.zero_grad()\n            scaler.unscale_"),
    )),
    "the optimizer steps without the scaler": ("optimizer steps", (
        ("scaler.step(optimizer)", "optimizer.step()"),
    )),
    "the sampler does not shuffle": ("DistributedSampler shuffle", (
        ("DistributedSampler(data)", "DistributedSampler(data, shuffle=False)"),
    )),
    "each epoch has the same order": ("epoch of a sampler", (("set_epoch(epoch)", "set_epoch(0)"),)),
    "another batch size": ("number", (("batch_size=4", "batch_size=8"),)),
    "no scaler": ("gradient scaler", (
        ("    scaler = torch.amp.GradScaler()\n", ""),
        ("scaler.scale((model(x) - y).square().mean()).backward()",
         "(model(x) - y).square().mean().backward()"),
        ("            scaler.unscale_(optimizer)\n", ""),
        ("scaler.step(optimizer)", "optimizer.step()"),
        ("            scaler.update()\n", ""),
    )),
    "the state is taken on one rank": ("state is taken", (
        (_TAKEN, ""),
        (_SAVE, f"    {_TAKEN}{_SAVE}"),
    )),
    "the state is saved sharded": ("state taken", (
        (_OPTIONS, ""), (_TAKEN, "        state = model.state_dict()\n"),
    )),
    "a whole state is loaded as shards": (
        "state loaded", ((_LOADED, 'model.load_state_dict(torch.load("last.pt"))'),),
    ),
    "the state is not loaded": ("state is loaded", ((_LOADED, "pass"),)),
    "the state is loaded by a function without a caller": ("state is loaded", (
        (_LOADED, "pass"),
        ("def main():", f"def restore(model, options):\n    {_LOADED}\n\n\ndef main():"),
    )),
    "nothing is written": ("file is written", ((_SAVE, "            pass\n"),)),
    "every rank writes": ("file is written", (("if rank == 0:", "if rank >= 0:"),)),
    "another file": ("path of a file that is written", (('save(state, "last', 'save(state, "first'),)),
    "another content": ("content of a file", (("save(state,", 'save({"model": state},'),)),
    "set_epoch is lost": ("set_epoch of a sampler", (("sampler.set_epoch(epoch)", "pass"),)),
    "a barrier on one rank": ("collective", ((_SAVE, f"{_SAVE}            dist.barrier()\n"),)),
    "FSDP1 is left": ("FSDP1 is left", (
        (_IMPORT, _IMPORT + _FSDP1), ("    options = {", f"{_OLD}    options = {{"),
    )),
    "another backend": ("backend", (('"gloo"', '"nccl"'),)),
    "a seed of the rank": ("seed", (("manual_seed(0)", "manual_seed(rank)"),)),
    "a size of the model": ("number", (("width=8", "width=16"),)),
    "the model is cast": ("cast of a module", (("shard(Net())", "shard(Net().to(torch.bfloat16))"),)),
}  # fmt: skip
