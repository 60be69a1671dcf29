"""Buffers that `to_empty` leaves without values, as far as code shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

from fsdplint.trace import ModuleMoved

MODEL = """
def table():
    return torch.arange(8.0)


def own_fill(tensor):
    tensor.copy_(table())


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("frequencies", table(), persistent={persistent})

    def set_values(self):
        nn.init.ones_(self.linear.weight)
        {values}

    def forward(self, x):
        {forward}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary()

    def forward(self, x):
        return self.rotary(x)


with torch.device("meta"):
    model = Model()
fully_shard(model)
model.to_empty(device="cpu")
{after}
model(torch.ones(8)).sum().backward()
"""
FORWARD = "return self.linear(x * self.frequencies)"


def unset(
    tmp_path: Path,
    after: str,
    values: str = "pass",
    forward: str = FORWARD,
    persistent: str = "False",
) -> set[tuple[str, ...]]:
    text = MODEL.format(after=after, values=values, forward=forward, persistent=persistent)
    (trace, *_) = program(tmp_path, text).traces
    return {one.untouched_buffers for one in trace.of(ModuleMoved) if one.method == "to_empty"}


@pytest.mark.parametrize(
    "after",
    [
        "model.rotary.set_values()",
        "for module in model.modules():\n    if isinstance(module, nn.Linear):\n        module.reset_parameters()",
        "for m in model.modules():\n    if hasattr(m, 'reset_parameters'):\n        m.reset_parameters()",
        "for m in model.modules():\n    if hasattr(m, 'init_weights'):\n        m.init_weights()",
        "model.load_state_dict(torch.load('model.pt'), strict=False)",
        "for p in model.parameters():\n    nn.init.normal_(p)",
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nmodel.train()",
    ],
)
def test_nothing_writes_to_it(tmp_path: Path, after: str) -> None:
    assert unset(tmp_path, after) == {("frequencies",)}


@pytest.mark.parametrize(
    "forward",
    [
        "return self.linear(x + torch.outer(x, self.frequencies))",
        "f = self.frequencies[:4]\n        return self.linear(f)",
        "return self.linear(torch.add(x, self.frequencies))",
    ],
)
def test_a_forward_reads_it(tmp_path: Path, forward: str) -> None:
    assert unset(tmp_path, "", forward=forward) == {("frequencies",)}


@pytest.mark.parametrize(
    ("after", "values"),
    [
        ("model.rotary.set_values()", "self.frequencies.copy_(table())"),
        ("model.rotary.set_values()", "self.frequencies = table()"),
        ("model.rotary.set_values()", "self.frequencies[:] = table()"),
        ("model.rotary.set_values()", "torch.add(table(), 1, out=self.frequencies)"),
        ("model.rotary.set_values()", "fill(self.frequencies)"),
        ("model.rotary.set_values()", "self.frequencies.data.copy_(table())"),
        ("model.rotary.set_values()", "self.__init__()"),
        ("model.rotary.set_values()", "self._buffers['frequencies'] = table()"),
        ("model.rotary.set_values()", "setattr(self, 'frequencies', table())"),
        ("model.rotary.frequencies = table()", "pass"),
        ("vars(model.rotary)['_buffers']['frequencies'] = table()", "pass"),
        ("object.__setattr__(model.rotary, 'frequencies', table())", "pass"),
        ("model.rotary.register_buffer('frequencies', table(), persistent=False)", "pass"),
        ("model.rotary = Rotary()", "pass"),
        ("model.init_weights()", "pass"),
        ("from library import Initializer\nInitializer().run(model)", "pass"),
        (
            "for m in model.modules():\n    if hasattr(m, 'frequencies'):\n        m.frequencies = table()",
            "pass",
        ),
        (
            "for m in model.modules():\n    f = getattr(m, 'set_values', None)\n"
            "    if f is not None:\n        f()",
            "self.frequencies.copy_(table())",
        ),
        ("for b in model.buffers():\n    b.fill_(1)", "pass"),
        ("initialize(model)", "pass"),
        ("library = __import__('library')\nlibrary.set(model.rotary)", "pass"),
        ("model.apply(initialize)", "pass"),
        ("for b in model.rotary.named_buffers():\n    dist.broadcast(b[1], 0)", "pass"),
    ],
)
def test_something_may_write_to_it(tmp_path: Path, after: str, values: str) -> None:
    assert unset(tmp_path, after, values) == {()}


@pytest.mark.parametrize(
    "forward",
    [
        "self.frequencies.copy_(table())\n        return self.linear(x * self.frequencies)",
        "self.frequencies = table()\n        return self.linear(x * self.frequencies)",
        "fill(self.frequencies)\n        return self.linear(x * self.frequencies)",
        "own_fill(self.frequencies)\n        return self.linear(x * self.frequencies)",
        "f = self.frequencies\n        f.copy_(table())\n        return self.linear(x * f)",
        "f = self.frequencies.data\n        f[:] = table()\n        return self.linear(x * f)",
        "self.frequencies[:8].copy_(table())\n        return self.linear(x * self.frequencies)",
        "self.frequencies.view(-1).fill_(1)\n        return self.linear(x * self.frequencies)",
        "torch.add(x, 1, out=self.frequencies)\n        return self.linear(x * self.frequencies)",
        "dist.broadcast(self.frequencies, 0)\n        return self.linear(x * self.frequencies)",
        "return self.linear(x)",
    ],
)
def test_the_forward_may_write_to_it_or_does_not_read_it(tmp_path: Path, forward: str) -> None:
    assert unset(tmp_path, "", forward=forward) == {()}


def test_a_checkpoint_may_have_it(tmp_path: Path) -> None:
    assert unset(tmp_path, "", persistent="True") == {()}


PARSER = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
parser.add_argument("--checkpoint")
parser.add_argument("--tables", action="store_true")
args = parser.parse_args()
{code}"""
SET = "model.rotary.set_values()"
LOAD = "model.load_state_dict(torch.load('model.pt'))"


def reports(tmp_path: Path, code: str, values: str = "self.frequencies.copy_(table())") -> int:
    text = MODEL.format(
        after=PARSER.format(code=code), values=values, forward=FORWARD, persistent=False
    )
    return len(findings(program(tmp_path, text), "FSDP704"))


@pytest.mark.parametrize(
    "code",
    [
        f"if not args.resume:\n    {SET}\nif args.resume:\n    {LOAD}\n",
        f"if args.resume:\n    {LOAD}\nelse:\n    {SET}\n",
        f"if args.checkpoint is None:\n    {SET}\nelse:\n    {LOAD}\n",
        f"{LOAD} if args.resume else {SET}\n",
        f"def start(resume):\n    if not resume:\n        {SET}\nstart(args.resume)\n"
        f"if args.resume:\n    {LOAD}\n",
        f"def start():\n    if args.resume:\n        return\n    {SET}\nstart()\n"
        f"if args.resume:\n    {LOAD}\n",
    ],
)
def test_a_resumed_run_does_not_initialise_it(tmp_path: Path, code: str) -> None:
    assert reports(tmp_path, code) == 1


@pytest.mark.parametrize(
    "code",
    [
        f"{SET}\nif args.resume:\n    {LOAD}\n",
        f"if args.tables:\n    {SET}\nif args.resume:\n    {LOAD}\n",
        f"if args.tables:\n    {SET}\n{LOAD}\n",
        f"if args.resume:\n    {LOAD}\n    {SET}\nelse:\n    {SET}\n",
        f"if args.resume:\n    {LOAD}\n    model.rotary.frequencies = table()\nelse:\n    {SET}\n",
    ],
)
def test_a_run_may_initialise_it(tmp_path: Path, code: str) -> None:
    assert reports(tmp_path, code) == 0
