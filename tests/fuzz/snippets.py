"""Pieces of Python that mutations put into programs."""

from __future__ import annotations

HEADERS = (
    "if flag:", "if rank == 0:", "if dist.get_rank() == 0:", "if args.fsdp:", "if not flag:",
    "try:", "with torch.no_grad():", "with open('x') as stream, lock:", "for step in range(3):",
    "for layer in model.layers:", "while True:", "def helper():", "async def helper():",
    "class Holder:", "def helper(model, *args, key=None, **kwargs):", "if __name__ == '__main__':",
    "async with session:", "async for item in source():", "match mode:\n    case 'fsdp':",
    "with model.no_sync():", "with FSDP.state_dict_type(model, kind):", "if (n := len(x)) > 1:",
    "@torch.no_grad()\ndef helper():", "@record\ndef main():", "else_ = 1\nif else_:",
    "with contextlib.nullcontext():", "for _, block in enumerate(model.blocks):",
)  # fmt: skip
EXPRESSIONS = (
    "({})", "[{}][0]", "({} if flag else {})", "(lambda: {})()", "({},)[0]", "({} or None)",
    "(value := {})", "f'{{{}}}'", "f\"{{f'{{{}}}'}}\"", "{}.module", "list({})", "next(iter([{}]))",
    "{{'a': {}}}['a']", "getattr({}, 'forward')", "[{} for _ in range(2)]", "(await {})",
    "{}.to(device)", "copy.deepcopy({})", "torch.compile({})", "(yield {})", "(\n    {}  # inner\n)",
    "{}()", "not {}", "*{}", "**{}",
)  # fmt: skip
ATOMS = (
    "None", "True", "False", "0", "-1", "'x'", "model", "FSDP", "optimizer", "rank", "...",
    "torch", "self", "lambda m: m", "[]", "{}", "()", "FSDP(model)", "model.parameters()",
    "model.state_dict()", "fully_shard(model)", "dist.get_rank()", "b'x'", "1e400", "'\\ud800'",
    "self.model", "args.fsdp", "world_size", "ShardingStrategy.FULL_SHARD", "x'y", "f'{x!r:>{w}}'",
)  # fmt: skip
LINES = (
    "model = FSDP(model)", "fully_shard(model)", "optimizer = torch.optim.AdamW(model.parameters())",
    "state = model.state_dict()", "torch.save(model.state_dict(), 'model.pt')",
    "model.load_state_dict(torch.load('model.pt'))", "loss.backward()", "optimizer.step()",
    "model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "global model", "nonlocal model", "del model", "return model", "continue", "break", "pass",
    "raise SystemExit", "yield model", "model: nn.Module = FSDP(model)", "import torch",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy",
    "from torch.distributed.fsdp import *", "from torch.distributed.fsdp import (\n    fully_shard,  # why\n)",
    "assert model", "a, b = model, optimizer", "(a, [b, *c]) = rest", "model = model2 = FSDP(model)",
    "model, optimizer = FSDP(model), 1", "model.module.x = 1", "dist.barrier()", "exec('x = 1')",
    "model = copy.deepcopy(model)", "for p in model.parameters(): p.data.zero_()", "x = y = z",
    "with FSDP.summon_full_params(model): print(model)", "type X = int", "if flag: model = FSDP(model)",
    "model.layers[0] = FSDP(model.layers[0])", "FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)",
    "model = FSDP(module=model, auto_wrap_policy=policy, **options)", "model = FSDP(*args)",
    "try: model = FSDP(model)\nexcept* ValueError: pass", "locals()['model'] = 1", "x = [FSDP(m) for m in ms]",
)  # fmt: skip
COMMENTS = (
    "# a comment", "#", "# noqa", "# noqa: FSDP103", "# noqa: E501,FSDP101", "#noqa:FSDP201 why",
    "# type: ignore", "# fsdplint: ignore[FSDP101]", "# fsdplint: ignore-next-line[FSDP201]",
    "# fsdplint: file-ignore", "# fsdplint: disable=FSDP103", "# fsdplint: enable", "# fmt: off",
    "# -*- coding: utf-8 -*-", "# \N{SNOWMAN} \U0001f600", "#!shebang", "# a # b  # c", "#\t tab\t",
    "# fsdplint: ignore", "# pragma: no cover", "#: documented", "# \x0c form feed",
)  # fmt: skip
NAMES = (
    "\u00e4\u00f6\u00fc", "\u540d\u524d", "\ufb01x", "\u00b5", "_", "__", "match", "case", "type", "model_1", "FSDP",
    "fully_shard", "torch", "self", "l", "print", "x" * 90, "__init__", "forward",
)  # fmt: skip
