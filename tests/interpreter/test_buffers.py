"""Buffers of modules: tensors that functions out of sight may get."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Escaped

NET = """\
from elsewhere import combine

class Rotary(nn.Module):
    def __init__(self, size):
        super().__init__()
        REGISTERED

    def forward(self, x, places):
        return READ

class Rotated(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.rotary(x, 4))

model = Rotated()
fully_shard(model)
model(torch.zeros(8)).sum().backward()
"""
BUFFER = 'self.register_buffer("cosines", torch.cos(torch.arange(size)), persistent=False)'


def net(registered: str, read: str) -> str:
    return NET.replace("REGISTERED", registered).replace("READ", read)


@pytest.mark.parametrize(
    ("registered", "read"),
    [
        (BUFFER, "combine(x, self.cosines)"),
        (BUFFER, "combine(x, self.cosines[:places])"),
        (BUFFER, "combine(x, self.cosines[places].to(x.dtype))"),
        (BUFFER, "combine([x, self.cosines])"),
        ('self.register_buffer(name="cosines", tensor=torch.ones(size))', "combine(self.cosines)"),
        ('self.register_buffer("cosines", None)', "combine(self.cosines)"),
        ("self.cosines = nn.Buffer(torch.ones(size))", "combine(self.cosines)"),
    ],
)
def test_a_function_gets_a_buffer_but_not_its_module(
    tmp_path: Path, registered: str, read: str
) -> None:
    assert not list(events(program(tmp_path, net(registered, read)), Escaped))


@pytest.mark.parametrize("read", ["combine(x, self)", "combine(x, self.forward)"])
def test_a_function_gets_a_module(tmp_path: Path, read: str) -> None:
    assert list(events(program(tmp_path, net(BUFFER, read)), Escaped))


def test_a_test_of_a_buffer_is_not_decided(tmp_path: Path) -> None:
    code = """\
    if model.rotary.cosines:
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
    """
    found = program(tmp_path, net(BUFFER, "x") + textwrap.dedent(code))
    built = [e for trace in found.traces for e in trace if e.kind == "optimizer-built"]
    assert all(e.guards for e in built)


@pytest.mark.parametrize("library", ["einops", "opt_einsum"])
def test_libraries_of_tensors_change_no_model(tmp_path: Path, library: str) -> None:
    code = net("self.held = size", "einsum(x, self.unknown, 'a b, b -> a')")
    code = code.replace("from elsewhere import combine", f"from {library} import einsum")
    assert not list(events(program(tmp_path, code), Escaped))


def test_a_state_is_followed_beside_buffers(tmp_path: Path) -> None:
    code = net(BUFFER, "combine(x, self.cosines)") + "torch.save(model.state_dict(), 'm.pt')\n"
    assert findings(program(tmp_path, code), "FSDP301")
