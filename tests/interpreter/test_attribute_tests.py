"""Tests of attributes: of objects that certainly lack them, and of gathered tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, program

from fsdplint.trace import Collective, Layout, Ranks, Saved, Sharded

HOLDERS = """\
class Plain:
    def __init__(self):
        self.rank = 0

class Marked(Plain):
    sharded = True

class Late(Plain):
    def start(self):
        self.sharded = True

class Dynamic(Plain):
    def __getattr__(self, name):
        return True

model = Net()
"""
# What is sharded where an attribute of an object is tested.
TESTS = {
    "getattr(Plain(), 'sharded', False)": set(),
    "hasattr(Plain(), 'sharded')": set(),
    "not hasattr(Plain(), 'sharded')": {"Net"},
    "getattr(Marked(), 'sharded', False)": {"Net"},
    "hasattr(Marked(), 'sharded')": {"Net"},
    "getattr(Late(), 'sharded', False)": {"Net"},
    "hasattr(Dynamic(), 'sharded')": {"Net"},
}


@pytest.mark.parametrize("test", TESTS)
def test_an_attribute_that_an_object_lacks(tmp_path: Path, test: str) -> None:
    body = f"if {test}:\n    fully_shard(model)\nmodel(torch.ones(1))\n"
    found = program(tmp_path, HOLDERS + body)
    assert {class_of(found, event.module) for event in events(found, Sharded)} == TESTS[test]


GATHERED = """\
from library import Opaque
from torch.distributed.tensor import DTensor

def whole(value):
    if {test}:
        value = value.full_tensor()
    return value.cpu()

dist.init_process_group("gloo")
model = Opaque.load()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
state = {{}}
for name, parameter in model.named_parameters():
    state[name] = whole(parameter)
if dist.get_rank() == 0:
    torch.save({{name: whole(value) for name, value in state.items()}}, "state.pt")
"""


@pytest.mark.parametrize("test", ["hasattr(value, 'full_tensor')", "isinstance(value, DTensor)"])
def test_a_gathered_tensor_is_not_gathered_again(tmp_path: Path, test: str) -> None:
    found = program(tmp_path, GATHERED.format(test=test))
    gathers = [event for event in events(found, Collective) if event.api == "full_tensor"]
    assert gathers and all(event.ranks is Ranks.ALL for event in gathers)


MAYBE_SHARDED = """\
from torch.distributed.tensor import DTensor
from library import make_blocks, make_optimizer

class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(make_blocks())

    def is_sharded(self):
        return any(isinstance(p, DTensor) for p in self.parameters())

    def fit(self, batches, shards):
        if shards:
            for block in self.blocks:
                fully_shard(block)
            fully_shard(self)
        optimizer = make_optimizer(self.parameters())
        for batch in batches:
            self(batch).sum().backward()
            optimizer.step()
        {test}
            torch.save(self.state_dict(), "model.pt")
"""


@pytest.mark.parametrize(
    "test",
    [
        "if not self.is_sharded():",
        "if not any(isinstance(p, DTensor) for p in self.parameters()):",
        "if all(not isinstance(p.grad, DTensor) for p in self.parameters()):",
        "if not hasattr(next(self.parameters()), 'full_tensor'):",
    ],
)
def test_parameters_that_code_out_of_sight_gets_stay_sharded(tmp_path: Path, test: str) -> None:
    found = program(tmp_path, MAYBE_SHARDED.format(test=test))
    assert any(trace.of(Sharded) for trace in found.traces)
    for saved in events(found, Saved):
        assert Layout.SHARDED not in saved.layouts
