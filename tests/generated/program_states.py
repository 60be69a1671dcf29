"""How a generated program takes, saves and loads states, and what it prints at its end."""

from __future__ import annotations

from program_features import Description

FULL = "StateDictType.FULL_STATE_DICT"
SHARDED = "StateDictType.SHARDED_STATE_DICT"
RANK0 = (
    "FullStateDictConfig(offload_to_cpu=True, rank0_only=True)",
    "FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)",
)
ALL = (
    "FullStateDictConfig(offload_to_cpu=False, rank0_only=False)",
    "FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False)",
)
SHARDED_CONFIG = (
    "ShardedStateDictConfig(offload_to_cpu=True)",
    "ShardedOptimStateDictConfig(offload_to_cpu=True)",
)


def _configs(d: Description, loading: bool) -> str:
    kind = SHARDED if d["state"].startswith("sharded") else FULL
    configs = {"full_rank0": RANK0, "full_all": ALL, "sharded_config": SHARDED_CONFIG}.get(
        d["state"]
    )
    if d["state"] == "full_rank0" and loading:
        configs = ALL
    return ", ".join((kind, *(configs or ())))


def _in_context(d: Description, body: list[str], loading: bool) -> list[str]:
    """The statements in the context of their kind of state."""
    if d["state"] == "plain":
        return body
    if d["state"] == "set_type":
        return [f"FSDP.set_state_dict_type(model, {FULL})", *body]
    head = f"with FSDP.state_dict_type(model, {_configs(d, loading)}):"
    return [head, *("    " + line for line in body)]


def save(d: Description) -> list[str]:
    """Statements that write `checkpoint`."""
    body = ["state = model.state_dict()"]
    kind = d["optimizer_state"]
    if kind == "modern":
        body.append("optimizer_state = FSDP.optim_state_dict(model, optimizer)")
    lines = _in_context(d, body, loading=False)
    if kind in ("full", "scatter"):
        only = ", rank0_only=False" if kind == "full" else ""
        lines.append(f"optimizer_state = FSDP.full_optim_state_dict(model, optimizer{only})")
    elif kind == "sharded":
        lines.append("optimizer_state = FSDP.sharded_optim_state_dict(model, optimizer)")
    content = '{"model": state'
    if kind != "none":
        content += ', "optimizer": optimizer_state'
    if d["scheduler"] != "none":
        content += ', "scheduler": scheduler.state_dict()'
    content += "}"
    if d["state"].startswith("sharded"):
        return [*lines, f'dcp.save({content}, checkpoint_id="checkpoint")']
    return [
        *lines,
        "if rank == 0:",
        f'    torch.save({content}, "checkpoint.pt")',
        "dist.barrier()",
    ]


def load(d: Description) -> list[str]:
    """Statements that read `checkpoint` into the model and the optimizer."""
    if d["state"].startswith("sharded"):
        return _load_sharded(d)
    lines = ['checkpoint = torch.load("checkpoint.pt", map_location="cpu", weights_only=False)']
    body = ['model.load_state_dict(checkpoint["model"])']
    kind = d["optimizer_state"]
    if kind == "modern":
        body += [
            'loaded = FSDP.optim_state_dict_to_load(model, optimizer, checkpoint["optimizer"])',
            "optimizer.load_state_dict(loaded)",
        ]
    lines += _in_context(d, body, loading=True)
    if d["scheduler"] != "none":
        lines.append('scheduler.load_state_dict(checkpoint["scheduler"])')
    if kind == "full":
        lines += [
            'loaded = FSDP.shard_full_optim_state_dict(checkpoint["optimizer"], model)',
            "optimizer.load_state_dict(loaded)",
        ]
    elif kind == "scatter":
        lines += [
            'whole = checkpoint["optimizer"] if rank == 0 else None',
            "loaded = FSDP.scatter_full_optim_state_dict(whole, model)",
            "optimizer.load_state_dict(loaded)",
        ]
    return lines


def _load_sharded(d: Description) -> list[str]:
    body = ['state = {"model": model.state_dict()}']
    kind = d["optimizer_state"]
    if kind == "modern":
        body.append('state["optimizer"] = FSDP.optim_state_dict(model, optimizer)')
    elif kind == "sharded":
        body.append('state["optimizer"] = FSDP.sharded_optim_state_dict(model, optimizer)')
    if d["scheduler"] != "none":
        body.append('state["scheduler"] = scheduler.state_dict()')
    body += [
        'dcp.load(state, checkpoint_id="checkpoint")',
        'model.load_state_dict(state["model"])',
    ]
    if kind == "modern":
        body += [
            'loaded = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])',
            "optimizer.load_state_dict(loaded)",
        ]
    elif kind == "sharded":
        body += [
            'loaded = FSDP.flatten_sharded_optim_state_dict(state["optimizer"], model, optimizer)',
            "optimizer.load_state_dict(loaded)",
        ]
    lines = _in_context(d, body, loading=True)
    if d["scheduler"] != "none":
        lines.append('scheduler.load_state_dict(state["scheduler"])')
    return lines


def checksum(d: Description) -> list[str]:
    """Statements that print sums of all parameters and of the optimizer's state."""
    if d["checksum"] == "none":
        return []
    if d["checksum"] == "summon":
        return [
            "with FSDP.summon_full_params(model, writeback=False):",
            "    for name, parameter in model.named_parameters():",
            '        print("parameter", name, parameter.detach().double().sum().item())',
        ]
    lines = [
        f"with FSDP.state_dict_type(model, {FULL}, {', '.join(ALL)}):",
        "    state = model.state_dict()",
        "    optimizer_state = FSDP.optim_state_dict(model, optimizer)",
        "for name, value in sorted(state.items()):",
        '    print("parameter", name, value.dtype, value.double().sum().item(), value.double().abs().sum().item())',
        'for name, entries in sorted(optimizer_state["state"].items()):',
        "    for key, value in sorted(entries.items()):",
        "        value = torch.as_tensor(value).double()",
        '        print("state", name, key, value.sum().item(), value.abs().sum().item())',
    ]
    return lines
