"""How a generated program trains: optimizer, steps, moving averages and evaluation."""

from __future__ import annotations

from program_features import Description


def optimizer(d: Description, settings: dict[str, str]) -> list[str]:
    """Statements that make the optimizer, scheduler and scaler."""
    lines, what = _groups(d)
    rate = f"lr={settings['lr']}"
    lines.append(
        {
            "sgd": f"optimizer = torch.optim.SGD({what}, {rate})",
            "momentum": f"optimizer = torch.optim.SGD({what}, {rate}, momentum=0.9)",
            "adamw": f"optimizer = torch.optim.AdamW({what}, {rate}, weight_decay=0.1)",
            "adam": f"optimizer = torch.optim.Adam({what}, {rate}, betas=(0.9, 0.95))",
            "adagrad": f"optimizer = torch.optim.Adagrad({what}, {rate})",
        }[d["optimizer"]]
    )
    schedulers = "torch.optim.lr_scheduler"
    if d["scheduler"] == "cosine":
        lines.append(f"scheduler = {schedulers}.CosineAnnealingLR(optimizer, T_max=4)")
    elif d["scheduler"] == "lambda":
        lines.append(f"scheduler = {schedulers}.LambdaLR(optimizer, lambda step: 1 / (1 + step))")
    elif d["scheduler"] == "step":
        lines.append(f"scheduler = {schedulers}.StepLR(optimizer, step_size=1, gamma=0.5)")
    if d["scaler"] != "none":
        where = 'device="cpu", ' if d["device"] == "cpu" else ""
        lines.append(f"scaler = ShardedGradScaler({where}init_scale=256.0)")
    if d["ema"] == "dict":
        lines += [
            "with FSDP.summon_full_params(model):",
            "    ema = {name: p.detach().clone() for name, p in model.named_parameters()}",
        ]
    elif d["ema"] == "state":
        lines += [
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):",
            "    ema = {key: value.clone() for key, value in model.state_dict().items()}",
        ]
    return lines


def _groups(d: Description) -> tuple[list[str], str]:
    """Statements that make parameter groups, and the first argument of the optimizer."""
    test = {
        "by_name": '"norm" in name or name.endswith("bias")',
        "by_ndim": "parameter.ndim < 2",
        "by_part": 'name.startswith("blocks")',
    }.get(d["groups"])
    if test is None:
        if d["frozen"] != "none":
            return [], "[p for p in model.parameters() if p.requires_grad]"
        return [], "model.parameters()"
    return [
        "decayed, others = [], []",
        "for name, parameter in model.named_parameters():",
        "    if not parameter.requires_grad:",
        "        continue",
        f"    if {test}:",
        "        others.append(parameter)",
        "    else:",
        "        decayed.append(parameter)",
        'parameter_groups = [{"params": decayed, "weight_decay": 0.1},',
        '                    {"params": others, "weight_decay": 0.0}]',
    ], "parameter_groups"


def batch(d: Description) -> list[str]:
    """The function that makes a batch of a step."""
    lines = [
        "def batch(step, rank):",
        "    generator = torch.Generator().manual_seed(10 * step + rank)",
    ]
    if d["model"] == "tokens":
        lines += [
            "    x = torch.randint(12, (2, 4), generator=generator)",
            "    return x, torch.roll(x, -1, dims=1)",
        ]
    else:
        cast = "" if d["inputs"] == "float32" else f".to(torch.{d['inputs']})"
        lines += [
            f"    x = torch.randn(2, 4, 8, generator=generator){cast}",
            "    return x, x[..., :4].float().tanh()",
        ]
    return [*lines, "", ""]


def _batch(d: Description, step: str) -> list[str]:
    moved = ["x, y = x.to(device), y.to(device)"] if d["device"] == "cuda" else []
    return [f"x, y = batch({step}, rank)", *moved]


def loss(d: Description) -> str:
    if d["model"] == "tokens":
        return "nn.functional.cross_entropy(model(x).float().flatten(0, 1), y.flatten())"
    return "nn.functional.mse_loss(model(x).float(), y)"


def train(d: Description, settings: dict[str, str]) -> list[str]:
    """The loop over `steps`."""
    lines = ["model.train()", "for step in steps:"]
    body = _backward(d)
    norm = _clip(d, settings)
    if d["scaler"] == "unscale":
        body.append("scaler.unscale_(optimizer)")
    body += norm
    if d["scaler"] == "none":
        body.append("optimizer.step()")
    else:
        body += ["scaler.step(optimizer)", "scaler.update()"]
    if d["reading"] == "gradients":
        body += [
            "with FSDP.summon_full_params(model, with_grads=True):",
            "    largest = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)",
            'print("largest gradient", largest)',
        ]
    body.append("optimizer.zero_grad()")
    if d["scheduler"] != "none":
        body.append("scheduler.step()")
    body += _average(d)
    parts = ["step {step} loss {loss.item()!r}"]
    if norm:
        parts.append("norm {norm.item()!r}")
    if d["scheduler"] != "none":
        parts.append("rate {scheduler.get_last_lr()[0]!r}")
    body += _printed(d, f'print(f"{" ".join(parts)}")')
    body += _read(d)
    return [*lines, *("    " + line for line in body)]


def _printed(d: Description, statement: str) -> list[str]:
    return [statement] if d["prints"] == "all" else ["if rank == 0:", f"    {statement}"]


def _backward(d: Description) -> list[str]:
    backward = "loss.backward()" if d["scaler"] == "none" else "scaler.scale(loss).backward()"
    if d["accumulation"] == "none":
        return [*_batch(d, "step"), f"loss = {loss(d)}", backward]
    inner = _batch(d, "2 * step + micro")
    one = [f"loss = {loss(d)} / 2", backward]
    indented = ["    " + line for line in one]
    if d["accumulation"] == "no_sync":
        inner += ["if micro == 0:", "    with model.no_sync():", *("    " + x for x in indented)]
        inner += ["else:", *indented]
    elif d["accumulation"] == "conditional":
        inner += ["with model.no_sync() if micro == 0 else contextlib.nullcontext():", *indented]
    elif d["accumulation"] == "stack":
        inner += [
            "with contextlib.ExitStack() as stack:",
            "    if micro != 1:",
            "        stack.enter_context(model.no_sync())",
            *indented,
        ]
    else:
        inner += one
    return ["for micro in range(2):", *("    " + line for line in inner)]


def _clip(d: Description, settings: dict[str, str]) -> list[str]:
    given = {
        "measure": "1e9",
        "two": settings["clip"],
        "one": f"{settings['clip']}, norm_type=1",
        "infinite": f"{settings['clip']}, float('inf')",
        "keyword": f"max_norm={settings['clip']}, norm_type=2.0",
    }.get(d["clip"])
    return [] if given is None else [f"norm = model.clip_grad_norm_({given})"]


def _average(d: Description) -> list[str]:
    if d["ema"] == "dict":
        return [
            "with FSDP.summon_full_params(model, writeback=False):",
            "    for name, p in model.named_parameters():",
            "        ema[name].mul_(0.9).add_(p.detach(), alpha=0.1)",
        ]
    if d["ema"] == "copy":
        return [
            "with torch.no_grad(), FSDP.summon_full_params(model):",
            "    for old, new in zip(averaged.parameters(), model.parameters()):",
            "        old.lerp_(new.to(old.dtype), 0.1)",
        ]
    if d["ema"] == "state":
        return [
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):",
            "    for key, value in model.state_dict().items():",
            "        if value.is_floating_point():",
            "            ema[key].lerp_(value.to(ema[key].dtype), 0.1)",
        ]
    return []


def _read(d: Description) -> list[str]:
    """Statements that read the model between two steps."""
    if d["reading"] == "summon":
        return [
            "with FSDP.summon_full_params(model, writeback=False):",
            "    weight = model.head.weight.detach().clone()",
            'print("head", weight.double().sum().item())',
        ]
    if d["reading"] == "norms":
        return [
            "with FSDP.summon_full_params(model, writeback=False, recurse=True):",
            "    for name, parameter in model.named_parameters():",
            "        if parameter.dim() == 2:",
            "            print(name, parameter.detach().double().norm().item())",
        ]
    if d["reading"] == "names":
        name = 'name.replace("_fsdp_wrapped_module.", "")'
        return [f'print("names", sorted({name} for name, _ in model.named_buffers()))']
    if d["reading"] == "units":
        return ['print("units", len(FSDP.fsdp_modules(model)))']
    return []


def average_checksum(d: Description) -> list[str]:
    if d["ema"] in ("dict", "state"):
        return [
            "for name in sorted(ema):",
            '    print("ema", name, ema[name].double().sum().item())',
        ]
    if d["ema"] == "copy":
        return [
            "for name, parameter in averaged.named_parameters():",
            '    print("ema", name, parameter.double().sum().item())',
        ]
    return []


def evaluate(d: Description) -> list[str]:
    body = [
        "model.eval()",
        "total = 0.0",
        "with torch.no_grad():",
        "    for step in range(50, 52):",
        *("        " + line for line in _batch(d, "step")),
        f"        total += {loss(d)}.item()",
    ]
    if d["evaluation"] == "summon":
        body = [
            "model.eval()",
            "total = 0.0",
            "with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):",
            *("    " + line for line in _batch(d, "50")),
            f"    total += {loss(d)}.item()",
        ]
    elif d["evaluation"] == "reduced":
        body = [
            "model.eval()",
            "sums = torch.zeros(2, device=device)",
            "with torch.no_grad():",
            "    for step in range(50, 52):",
            *("        " + line for line in _batch(d, "step")),
            f"        sums[0] += {loss(d)}",
            "        sums[1] += 1",
            "dist.all_reduce(sums)",
            "total = (sums[0] / sums[1]).item()",
        ]
    return [*body, "model.train()", *_printed(d, 'print("evaluation", total)')]


def generate(d: Description) -> list[str]:
    if d["generation"] == "summon":
        return [
            "model.eval()",
            "with FSDP.summon_full_params(model, writeback=False, recurse=False):",
            "    sample = model.generate(torch.tensor([[1, 2]], device=device), 3)",
            'print("sample", sample.tolist())',
        ]
    if d["generation"] == "parts":
        return [
            "model.eval()",
            "with torch.no_grad(), FSDP.summon_full_params(model):",
            "    encoded = model.encode(torch.tensor([[1, 2]], device=device))",
            'print("encoded", encoded.double().sum().item())',
        ]
    return [
        "model.eval()",
        "with torch.no_grad():",
        "    tokens = torch.tensor([[1, 2]], device=device)",
        "    for _ in range(3):",
        "        token = model(tokens)[:, -1].argmax(dim=-1, keepdim=True)",
        "        tokens = torch.cat([tokens, token], dim=1)",
        'print("sample", tokens.tolist())',
    ]
