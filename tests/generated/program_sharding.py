"""How a generated program builds its model: policy, arguments and wrapping."""

from __future__ import annotations

from dataclasses import dataclass, field

from program_features import Description

DTYPES = {
    "params": ("torch.bfloat16", None, None),
    "reduce": (None, "torch.bfloat16", None),
    "mixed": ("torch.bfloat16", "torch.float32", None),
    "all": ("torch.bfloat16", "torch.bfloat16", "torch.bfloat16"),
    "fp16": ("torch.float16", "torch.float16", "torch.float16"),
    "buffers": ("torch.bfloat16", "torch.float32", "torch.float32"),
    "wider_reduce": ("torch.bfloat16", "torch.float64", "torch.bfloat16"),
}
CASTS = {
    "default": "",
    "no_root": ", cast_root_forward_inputs=False",
    "forward": ", cast_forward_inputs=True",
    "neither": ", cast_forward_inputs=False, cast_root_forward_inputs=False",
}
STRATEGIES = {
    "full": "FULL_SHARD",
    "grad_op": "SHARD_GRAD_OP",
    "no_shard": "NO_SHARD",
    "hybrid": "HYBRID_SHARD",
    "hybrid_groups": "HYBRID_SHARD",
    "hybrid_mesh": "HYBRID_SHARD",
    "hybrid_zero2": "_HYBRID_SHARD_ZERO2",
}
PREFETCH = {
    "pre": "BackwardPrefetch.BACKWARD_PRE",
    "post": "BackwardPrefetch.BACKWARD_POST",
    "none": "None",
}


@dataclass
class Sharding:
    """The text that shards a model.

    Attributes:
        functions: functions and classes of the module, by line.
        before: statements before the arguments, such as those that make groups.
        arguments: names and expressions of the keyword arguments of FSDP.
        policy: the keyword arguments of the outermost wrapping alone.
    """

    functions: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    policy: dict[str, str] = field(default_factory=dict)


def sharding(d: Description, settings: dict[str, str]) -> Sharding:
    """The arguments of FSDP; `settings` has the expressions that a configuration replaces."""
    text = Sharding()
    _policy(d, text)
    _strategy(d, text, settings)
    _precision(d, text)
    _others(d, text)
    return text


def _policy(d: Description, text: Sharding) -> None:
    layers = "{Block, Mlp}" if d["nesting"] == "yes" else "{Block}"
    test = "isinstance(module, Block)"
    transformer = f"functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={layers})"
    expression = {
        "transformer": transformer,
        "module_wrap": f"ModuleWrapPolicy({layers})",
        "size": "functools.partial(size_based_auto_wrap_policy, min_num_params=200)",
        "lambda": f"functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda module: {test})",
        "custom": f"CustomPolicy(lambda module: {test})",
        "custom_arguments": "CustomPolicy(choose)",
        "always": "always_wrap_policy",
        "or": "functools.partial(_or_policy, policies=["
        f"{transformer}, functools.partial(lambda_auto_wrap_policy, lambda_fn=is_small)])",
        "function": "wrap_blocks",
    }.get(d["policy"])
    if expression is not None:
        text.policy["auto_wrap_policy"] = expression
    if d["policy"] == "custom_arguments":
        text.functions += [
            "def choose(module):",
            f"    if {test}:",
            '        return {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}',
            "    return False",
            "",
            "",
        ]
    elif d["policy"] == "or":
        text.functions += [
            "def is_small(module):",
            "    return isinstance(module, nn.Linear) and module.out_features == 16",
            "",
            "",
        ]
    elif d["policy"] == "function":
        text.functions += [
            "def wrap_blocks(module, recurse, nonwrapped_numel):",
            "    if recurse:",
            "        return True",
            f"    return {test} and nonwrapped_numel > 10",
            "",
            "",
        ]


def _strategy(d: Description, text: Sharding, settings: dict[str, str]) -> None:
    strategy = d["strategy"]
    if strategy in STRATEGIES:
        text.arguments["sharding_strategy"] = settings["strategy"]
    if strategy == "group":
        text.before.append("group = dist.new_group([0, 1])")
        text.arguments["process_group"] = "group"
    elif strategy == "mesh":
        text.before.append('mesh = init_device_mesh("DEVICE", (2,))'.replace("DEVICE", d["device"]))
        text.arguments["device_mesh"] = "mesh"
    elif strategy == "hybrid_groups":
        text.before += [
            "shard_group = dist.new_group([0, 1])",
            "alone = [dist.new_group([one]) for one in range(2)]",
        ]
        text.arguments["process_group"] = "(shard_group, alone[rank])"
    elif strategy in ("hybrid_mesh", "hybrid_zero2"):
        names = 'mesh_dim_names=("replicate", "shard")'
        text.before.append(f'mesh = init_device_mesh("{d["device"]}", (1, 2), {names})')
        text.arguments["device_mesh"] = "mesh"


def _precision(d: Description, text: Sharding) -> None:
    if d["precision"] == "none":
        return
    names = ("param_dtype", "reduce_dtype", "buffer_dtype")
    dtypes = zip(names, DTYPES[d["precision"]], strict=True)
    given = ", ".join(f"{name}={one}" for name, one in dtypes if one is not None)
    text.arguments["mixed_precision"] = f"MixedPrecision({given}{CASTS[d['casts']]})"


def _others(d: Description, text: Sharding) -> None:
    arguments = text.arguments
    if d["offload"] != "none":
        arguments["cpu_offload"] = f"CPUOffload(offload_params={d['offload'] == 'yes'})"
    if d["placement"] == "device_id":
        arguments["device_id"] = "device"
    elif d["placement"] == "current":
        arguments["device_id"] = "torch.cuda.current_device()"
    if d["orig_params"] != "omitted":
        arguments["use_orig_params"] = d["orig_params"].capitalize()
    if d["backward_prefetch"] != "omitted":
        arguments["backward_prefetch"] = PREFETCH[d["backward_prefetch"]]
    if d["forward_prefetch"] == "yes":
        arguments["forward_prefetch"] = "True"
    if d["limit"] != "omitted":
        arguments["limit_all_gathers"] = str(d["limit"] == "yes")
    if d["init"] in ("sync", "meta_sync"):
        arguments["sync_module_states"] = "True"
    where = "torch.cuda.current_device()" if d["device"] == "cuda" else 'torch.device("cpu")'
    if d["init"] == "meta_function":
        arguments["param_init_fn"] = "init_weights"
        text.functions += [
            "def init_weights(module):",
            f"    module.to_empty(device={where}, recurse=False)",
            "    if isinstance(module, (nn.Linear, nn.Embedding)):",
            "        nn.init.normal_(module.weight, std=0.2)",
            "        if getattr(module, 'bias', None) is not None:",
            "            nn.init.zeros_(module.bias)",
            "    elif isinstance(module, nn.LayerNorm):",
            "        nn.init.ones_(module.weight)",
            "        nn.init.zeros_(module.bias)",
            "    elif hasattr(module, 'scale'):",
            "        module.scale.fill_(0.7)",
            "    elif hasattr(module, 'seen'):",
            "        module.seen.zero_()",
            "",
            "",
        ]
    if d["init"] == "meta_sync":
        arguments["param_init_fn"] = (
            "(lambda module: module.to_empty(device=device, recurse=False)) if rank != 0 else None"
        )
    if d["ignored"] == "modules":
        text.policy["ignored_modules"] = "[model.side]"
    elif d["ignored"] == "states":
        text.policy["ignored_states"] = "[model.side]"
    elif d["ignored"] == "parameters":
        text.policy["ignored_states"] = "list(model.side.parameters())"


def build(d: Description, text: Sharding) -> list[str]:
    """Statements that build the model, from the seed to the last wrapper."""
    lines = list(text.before)
    lines.append("torch.manual_seed(7 + rank)" if d["init"] == "sync" else "torch.manual_seed(7)")
    if d["policy"] == "wrap_in_constructor":
        lines += _call(d, text, {}, "enable_wrap", "", wrapper=True)
        lines += ["    " + _made(d)[0], *_after_context(d)]
    else:
        lines += _made(d)
        lines += _frozen(d)
        if d["ema"] == "copy":
            lines.append("averaged = copy.deepcopy(model)")
        lines += _checkpointing(d, "before")
        if d["compile"] == "before":
            lines.append('model = torch.compile(model, backend="eager")')
        lines += _wrapped(d, text)
    lines += _checkpointing(d, "after")
    if d["compile"] == "model":
        lines.append('model = torch.compile(model, backend="eager")')
    elif d["compile"] == "blocks":
        values = "model.blocks.values()" if d["blocks"] == "dict" else "model.blocks"
        lines += [f"for block in {values}:", '    block.compile(backend="eager")']
    return lines


def _after_context(d: Description) -> list[str]:
    return ["    model = wrap(model)"]


def _made(d: Description) -> list[str]:
    if d["init"] in ("meta_reset", "meta_function"):
        return ['with torch.device("meta"):', "    model = Net()"]
    if d["init"] == "meta_sync":
        return [
            "if rank == 0:",
            "    model = Net()",
            "else:",
            '    with torch.device("meta"):',
            "        model = Net()",
        ]
    if d["placement"] == "moved":
        return ["model = Net().to(device)"]
    return ["model = Net()"]


def _frozen(d: Description) -> list[str]:
    ignored = ["model.side.requires_grad_(False)"] if d["ignored"] != "none" else []
    return [*ignored, *_frozen_parts(d)]


def _frozen_parts(d: Description) -> list[str]:
    if d["frozen"] == "embedding":
        return ["model.embed.requires_grad_(False)"]
    if d["frozen"] == "first_block":
        first = 'model.blocks["0"]' if d["blocks"] == "dict" else "model.blocks[0]"
        return [f"for parameter in {first}.parameters():", "    parameter.requires_grad = False"]
    if d["frozen"] == "biases":
        return [
            "for name, parameter in model.named_parameters():",
            '    if name.endswith("bias"):',
            "        parameter.requires_grad_(False)",
        ]
    return []


def _checkpointing(d: Description, where: str) -> list[str]:
    if d["checkpointing"] != where:
        return []
    wrapper = "functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)"
    check = "check_fn=lambda module: isinstance(module, Block)"
    return [f"apply_activation_checkpointing(model, checkpoint_wrapper_fn={wrapper}, {check})"]


def _wrapped(d: Description, text: Sharding) -> list[str]:
    arguments = {**text.policy, **text.arguments}
    if d["policy"] == "wrap":
        lines = _call(d, text, text.policy, "enable_wrap", "", wrapper=True)
        return [*lines, *_each(d, "wrap({})", "    "), "    model = wrap(model)"]
    if d["policy"] == "by_hand":
        if d["arguments"] in ("dict", "items", "helper"):
            lines = _collected(d, text, text.arguments)
            given = "**fsdp_arguments"
        else:
            lines, given = [], _keywords(text.arguments)
        outer = ", ".join(filter(None, [_keywords(text.policy), given]))
        return [*lines, *_each(d, f"FSDP({{}}, {given})", ""), f"model = FSDP(model, {outer})"]
    return _call(d, text, arguments, "FSDP", "model", wrapper=False)


def _each(d: Description, call: str, indent: str) -> list[str]:
    """Statements that replace each block by a call of it."""
    if d["blocks"] == "dict":
        return [
            f"{indent}for key in list(model.blocks):",
            f"{indent}    model.blocks[key] = {call.format('model.blocks[key]')}",
        ]
    return [
        f"{indent}for i, block in enumerate(model.blocks):",
        f"{indent}    model.blocks[i] = {call.format('block')}",
    ]


def _keywords(arguments: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items())


def _call(
    d: Description,
    text: Sharding,
    arguments: dict[str, str],
    function: str,
    first: str,
    *,
    wrapper: bool,
) -> list[str]:
    """The call of FSDP or of enable_wrap, as the description gives arguments."""
    every = {**arguments, **text.arguments}
    if wrapper:
        every = {"wrapper_cls": "FSDP", **every}
    form = d["arguments"]
    if form == "method" and not wrapper:
        positional = "" if "sharding_strategy" not in every else every.pop("sharding_strategy")
        if positional and "process_group" not in every:
            return [f"model = FSDP(model, None, {positional}, {_keywords(every)})"]
        if positional:
            every["sharding_strategy"] = positional
    if form == "variables":
        lines = []
        for name in ("auto_wrap_policy", "mixed_precision", "sharding_strategy"):
            if name in every:
                lines.append(f"{name} = {every[name]}")
                every[name] = name
        return [*lines, _statement(function, first, _keywords(every))]
    if form in ("dict", "items", "helper"):
        return [*_collected(d, text, every), _statement(function, first, "**fsdp_arguments")]
    if form == "partial" and not wrapper:
        return [f"shard = functools.partial(FSDP, {_keywords(every)})", "model = shard(model)"]
    return [_statement(function, first, _keywords(every))]


def _statement(function: str, first: str, given: str) -> str:
    if function == "enable_wrap":
        return f"with enable_wrap({given}):"
    return f"model = {function}({first}, {given})"


def _collected(d: Description, text: Sharding, arguments: dict[str, str]) -> list[str]:
    """Statements that collect the arguments in a dict."""
    form = d["arguments"]
    if form == "dict":
        return [f"fsdp_arguments = dict({_keywords(arguments)})"]
    if form == "items":
        names = list(arguments)
        return [
            "fsdp_arguments = {" + f'"{names[0]}": {arguments[names[0]]}' + "}",
            *(f'fsdp_arguments["{name}"] = {arguments[name]}' for name in names[1:]),
        ]
    free = [name for name in ("model", "mesh", "group", "rank", "shard_group", "alone", "device")]
    free += ["args", "config"]
    every = _keywords(arguments)
    used = [name for name in free if _names(every, name)]
    text.functions += [
        f"def sharding_arguments({', '.join(used)}):",
        f"    return dict({every})",
        "",
        "",
    ]
    return [f"fsdp_arguments = sharding_arguments({', '.join(used)})"]


def _names(text: str, name: str) -> bool:
    import re

    return re.search(rf"(?<![\w.\"]){name}(?![\w\"=])", text) is not None
