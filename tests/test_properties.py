"""What holds of every program: checked on programs that are made of the grammar of FSDP programs.

A few each time, always the same; `FSDPLINT_EXAMPLES=2000 pytest tests/test_properties.py` tries as
many others. `tests/fuzz/promises.py` says what is promised; a fuzzer tries the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from promises import MIXED, NOTEBOOK, SAFE, UNSAFE, Keeper

EXAMPLES = int(os.environ.get("FSDPLINT_EXAMPLES", "25"))
MANY = settings(
    max_examples=EXAMPLES,
    derandomize="FSDPLINT_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

IMPORTS = [
    "import torch",
    "import torch.nn as nn",
    "import torch.distributed as dist",
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard",
    "from torch.distributed.fsdp import (\n    MixedPrecision,  # precision\n    ShardingStrategy, StateDictType, FullStateDictConfig,\n)",
    "from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy",
    "import functools",
]
MODEL = """\
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def encode(self, x):
        return self.blocks[0](x)
"""
ARGUMENTS = [
    "use_orig_params=True", "device_id=0", "sync_module_states=True", "limit_all_gathers=True",
    "sharding_strategy=ShardingStrategy.FULL_SHARD", "sharding_strategy=ShardingStrategy.SHARD_GRAD_OP",
    "auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})",
    "auto_wrap_policy=functools.partial(\n    size_based_auto_wrap_policy,  # by size\n    min_num_params=100,\n)",
    "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)", "mixed_precision=bf16",
]  # fmt: skip
SIMPLE = [
    "{model} = {model}.to(device)", "fully_shard({model})", "fully_shard({model}.blocks[0])",
    "fully_shard({model}, reshard_after_forward=True)", "model = nn.Linear(8, 8)", "model = Net()",
    "optimizer = torch.optim.AdamW({model}.parameters(), lr=1e-3)", "optimizer.zero_grad()",
    "optimizer.step()", "loss = {model}(x).mean()", "loss.backward()", "loss = {model}.forward(x).sum()",
    "loss = {model}.encode(x).sum()", "{model}(x).mean().backward()", "state = {model}.state_dict()",
    "torch.save({model}.state_dict(), 'model.pt')", "{model}.load_state_dict(torch.load('model.pt'))",
    "torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)", "{model}.clip_grad_norm_(1.0)",
    "dist.init_process_group('nccl')", "dist.barrier()", "print({model})", "helper({model})",
    "{model} = copy.deepcopy({model})", "{model}.train()", "x, y = batch", "optimizer = make({model}, optimizer)",
    "bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)", "pass",
    "FSDP.set_state_dict_type({model}, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True))",
    "norm = sum(p.grad.norm() for p in {model}.parameters())", "torch.manual_seed(rank)", "model2 = {model}",
    "optimizer.add_param_group({{'params': {model}.head.parameters()}})", "{model}.module.head.weight.data.zero_()",
]  # fmt: skip
HEADERS = [
    "if args.fsdp:", "if rank == 0:", "if dist.get_rank() == 0:", "for step in range(3):",
    "for batch in loader:", "with {model}.no_sync():", "with torch.no_grad():", "while True:",
    "with FSDP.state_dict_type({model}, StateDictType.FULL_STATE_DICT):", "for block in {model}.blocks:",
    "with FSDP.summon_full_params({model}):", "def helper(model):", "class Trainer:", "async def other():",
    "if (n := len(x)) > 1:", "with open('log') as log, torch.autocast('cuda'):", "def main():",
]  # fmt: skip
COMMENTS = [
    "",
    "",
    "",
    "",
    "  # why",
    "  # noqa: FSDP103",
    " # type: ignore",
    "#tight",
    "  # \u00e4 \u540d \U0001f600",
]
MODELS = ["model", "model", "model", "self.model", "net"]


@st.composite
def wrapped(draw: st.DrawFn) -> str:
    """A model in FSDP1's wrapper."""
    given_ = draw(
        st.lists(st.sampled_from(ARGUMENTS), max_size=4, unique_by=lambda a: a.split("=")[0])
    )
    separator = draw(st.sampled_from([", ", ",\n    ", ",  # this one\n    "]))
    name = draw(st.sampled_from(MODELS))
    end = draw(st.sampled_from(["", ",\n", "  # the last\n"])) if given_ else ""
    return f"{name} = FSDP({separator.join([name, *given_])}{end})"


@st.composite
def lines(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """A block of statements."""
    result: list[str] = []
    for _ in range(draw(st.integers(1, 5 if depth == 0 else 3))):
        if draw(st.integers(0, 9)) == 0:
            result.append(draw(st.sampled_from(["# a comment", "", "    # deeper", "#"])))
        if depth < 3 and draw(st.integers(0, 3)) == 0:
            header = draw(st.sampled_from(HEADERS)).format(model=draw(st.sampled_from(MODELS)))
            indent = draw(st.sampled_from(["    ", "    ", "  ", "\t"]))
            body = draw(lines(depth + 1))
            result.append(header + draw(st.sampled_from(COMMENTS)))
            result += [indent + line if line.strip() else line for line in body]
            if header.startswith("if") and draw(st.booleans()):
                result += ["else:", indent + "pass"]
            continue
        simple = st.sampled_from(SIMPLE)
        text = draw(st.one_of(simple, simple, simple, wrapped()))
        if not text.startswith(("model = FSDP", "net = FSDP", "self.model = FSDP")):
            text = text.format(model=draw(st.sampled_from(MODELS)))
            if draw(st.integers(0, 9)) == 0:
                text += "; x = 1"
        text += draw(st.sampled_from(COMMENTS))
        result += text.split("\n") if "(" in text else [text]
    result.append(draw(st.sampled_from(["pass", "x = 1", "model(x).mean().backward()"])))
    return result


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """A program, and how it is written down."""
    imports = [one for one in IMPORTS if draw(st.integers(0, 7))]
    parts = [
        draw(st.sampled_from(["", '"""What it does."""', "#!/usr/bin/env python", "# a licence"])),
        *imports,
        MODEL,
        "model = Net()" if draw(st.booleans()) else "",
        *draw(lines()),
    ]
    text = "\n".join(parts) + draw(st.sampled_from(["\n", "", "\n\n", "\n# the end"]))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\n", "\n", "\r\n"])))
    return draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"])) + text.encode()


@pytest.mark.parametrize("mode", [UNSAFE, SAFE, MIXED, NOTEBOOK])
def test_promises(tmp_path_factory: pytest.TempPathFactory, mode: str) -> None:
    """No crash; fixes compile, are whole, keep comments and all other bytes."""
    keeper = Keeper(tmp_path_factory.mktemp("programs"))
    each = settings(MANY, max_examples=EXAMPLES if mode == UNSAFE else max(EXAMPLES // 4, 1))

    @each
    @given(programs())
    def kept(data: bytes) -> None:
        found = keeper.broken(data, mode)
        assert found is None, f"{found.signature}\n{found.details}"

    kept()


def test_the_programs_are_worth_it(tmp_path: Path) -> None:
    """Most of them are programs, and many have something to be fixed."""
    from fsdplint.config.command_line import CommandLine
    from fsdplint.engine.operations import fix_files
    from fsdplint.engine.session import Session

    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "train.py"
    seen = {"all": 0, "python": 0, "found": 0, "fixed": 0}

    @settings(MANY, max_examples=20)
    @given(programs())
    def look(data: bytes) -> None:
        path.write_bytes(data)
        changes = fix_files(Session([path], CommandLine(unsafe_fixes=True)))
        seen["all"] += 1
        seen["python"] += not changes.result.problems
        seen["found"] += bool(changes.result.findings or changes.applied)
        seen["fixed"] += bool(changes.contents)

    look()
    assert seen["python"] > seen["all"] * 0.7
    assert seen["found"] > seen["all"] * 0.3
    assert seen["fixed"] > seen["all"] * 0.1


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle turns defects into errors by a variable of the environment."""
    monkeypatch.setenv("FSDPLINT_DEBUG", "1")


def test_the_oracle_sees_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each promise can be broken, and that is seen."""
    import dataclasses

    from fsdplint.diagnostics.finding import Edit
    from fsdplint.edits import apply as edits
    from fsdplint.source.source import Source

    bad = (
        b"import torch\nfrom torch.distributed.fsdp import fully_shard\n# first\n"
        b"model = torch.nn.Linear(8, 8)  # beside\nfully_shard(model)\n"
        b"model.forward(torch.ones(1, 8)).sum().backward()\n"
    )
    keeper = Keeper(tmp_path / "programs")
    assert keeper.broken(bad) is None
    original = edits.apply

    def changed(more: str, less: str) -> None:
        def apply(sources, fixes):  # type: ignore[no-untyped-def]
            applied = original(sources, fixes)
            for path, text in list(applied.texts.items()):
                applied.texts[path] = text.replace(less, more) if less else text + more
            return applied

        monkeypatch.setattr(edits, "apply", apply)

    for more, less, kind in (
        ("", "  # beside", "other bytes changed"),
        ("", "# first\n", "other bytes changed"),
        ("return\n", "", "no Python any more"),
        ("model.forward(1)\n", "", "not done at once"),
    ):
        changed(more, less)
        found = keeper.broken(bad)
        assert found is not None and found.kind == kind, (more, less, found)
    monkeypatch.setattr(edits, "apply", original)

    def drops(sources, fixes):  # type: ignore[no-untyped-def]
        """A fix that takes a comment along."""
        at = bad.decode().index("  # beside")
        edit = Edit(next(iter(sources)), at, at + 10, "")
        fixes = [dataclasses.replace(one, edits=(edit, *one.edits)) for one in fixes]
        return original(sources, fixes)

    monkeypatch.setattr(edits, "apply", drops)
    found = keeper.broken(bad)
    assert found is not None and found.kind == "lost comments"
    monkeypatch.setattr(edits, "apply", original)
    monkeypatch.setattr(Source, "to_bytes", lambda self, text: text.encode() + b"\n")
    found = keeper.broken(bad)
    assert found is not None and found.kind == "not the file's bytes"
    monkeypatch.setattr(edits, "apply", lambda sources, fixes: 1 / 0)
    found = keeper.broken(bad)
    assert found is not None and found.kind == "crash"
