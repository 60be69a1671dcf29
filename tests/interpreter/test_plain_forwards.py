"""A forward that only computes is executed once for arguments of the same kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import program

from fsdplint.interpreter import forward_summaries, module_calls
from fsdplint.trace import Called, Sharded, Trace

# An autoencoder that keeps the last frames of each layer in lists.
CODER = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(8, 8)
        self.calls = 0
    def forward(self, x, cache, index):
        number = index[0]
        x = self.conv(x if cache[number] is None else x + cache[number])
        cache[number] = x
        index[0] += 1
        self.calls += 1
        return x

class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.last = nn.Linear(8, 8)
        {}
    def forward(self, x, cache, index, final=False):
        for layer in self.layers:
            x = layer(x, cache, index)
        return self.last(x) if final else x

def encode(coder, frames, final=False):
    for frame in frames:
        coder(frame, [None] * 3, [0], final=final)
"""

TRAINING = """
from coder import Coder, encode
coder = Coder()
model = Net()
frames = [torch.ones(2, 8), torch.ones(2, 8), torch.ones(2, 8)]
{}
"""


def traces(folder: Path, body: str, coder: str = CODER, more: str = "") -> list[Trace]:
    return program(folder, TRAINING.format(body), coder=coder.replace("{}", more or "pass")).traces


def executed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The modules whose forward is executed, in order."""
    found: list[object] = []
    execute = module_calls._run_method

    def note(*given: object) -> object:
        found.append(given[1].cls.name if given[1].cls else "")  # type: ignore[attr-defined]
        return execute(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module_calls, "_run_method", note)
    return found


def calls(found: list[Trace]) -> list[tuple[object, ...]]:
    events = [event for trace in found for event in trace.of(Called)]
    return [(e.module, e.via, e.inside, e.index, e.in_loop, e.site.location()) for e in events]


def test_a_forward_with_a_cache_is_executed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = executed(monkeypatch)
    found = traces(tmp_path, "encode(coder, frames)\nencode(coder, frames)")
    assert made.count("Coder") == len(found)
    monkeypatch.setattr(forward_summaries, "may_be_plain", lambda *_: False)
    every = traces(tmp_path, "encode(coder, frames)\nencode(coder, frames)")
    assert made.count("Coder") > 2 * len(every)
    assert calls(found) == calls(every)


def test_another_constant_is_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = executed(monkeypatch)
    found = traces(tmp_path, "encode(coder, frames)\nencode(coder, frames, final=True)")
    assert made.count("Coder") == 2 * len(found)
    assert calls(found)[-1][0] != calls(found)[0][0]


@pytest.mark.parametrize("more", ["self.extra = fully_shard(nn.Linear(8, 8))"])
def test_a_part_that_is_sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    made = executed(monkeypatch)
    header = "from torch.distributed.fsdp import fully_shard\n"
    found = traces(tmp_path, "encode(coder, frames)", header + CODER, more)
    assert made.count("Coder") == 3 * len(found)


def test_a_model_that_is_sharded_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = executed(monkeypatch)
    traces(tmp_path, "encode(coder, frames)\nfully_shard(coder)\nencode(coder, frames)")
    assert made.count("Coder") == 4


def test_a_file_that_communicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = executed(monkeypatch)
    coder = "import torch.distributed as dist\n" + CODER
    found = traces(tmp_path, "encode(coder, frames)", coder)
    assert made.count("Coder") == 3 * len(found)


@pytest.mark.parametrize("test", ["coder.layers[0].calls == 6", "index[0] == 6"])
def test_what_a_forward_counts_is_unknown(tmp_path: Path, test: str) -> None:
    body = (
        "index = [0]\nfor frame in frames:\n    coder(frame, [None] * 9, index)\n"
        f"if {test}:\n    fully_shard(model)\n"
    )
    found = traces(tmp_path, body)
    assert {any(trace.of(Sharded)) for trace in found} == {False, True}
