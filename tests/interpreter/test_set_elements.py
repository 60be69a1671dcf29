"""Elements of a list of modules that the program sets by a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Called, Sharded

CODE = """
import sys

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.many = nn.ModuleList([nn.Linear(8, 8) for _ in range(int(sys.argv[1]))])
        self.few = nn.ModuleList([nn.Linear(8, 8), nn.ReLU()])

    def forward(self, x):
        for layer in self.many:
            x = layer(x)
        return x

model = Net()
{statement}
for layer in model.{blocks}:
    fully_shard(layer)
model(torch.randn(2, 8))
"""


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("model.many[0] = nn.Conv1d(8, 8, 1)", ["Conv1d", "Linear"]),
        ("model.many[2] = nn.Conv1d(8, 8, 1)", ["Linear", "Conv1d"]),
        ("model.many[-1] = nn.Conv1d(8, 8, 1)", ["Linear", "Conv1d"]),
        ("for i in range(len(model.many)):\n    model.many[i] = nn.Conv1d(8, 8, 1)", ["Conv1d"]),
    ],
)
def test_one_of_several_elements(tmp_path: Path, statement: str, wanted: list[str]) -> None:
    code = CODE.format(statement=statement, blocks="many")
    for kind in (Sharded, Called):
        assert _classes(tmp_path, code, kind)[: len(wanted)] == wanted


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("model.few[0] = nn.Conv1d(8, 8, 1)", ["Conv1d", "ReLU"]),
        ("model.few[-1] = nn.Conv1d(8, 8, 1)", ["Linear", "Conv1d"]),
    ],
)
def test_one_of_known_elements(tmp_path: Path, statement: str, wanted: list[str]) -> None:
    code = CODE.format(statement=statement, blocks="few")
    assert _classes(tmp_path, code, Sharded) == wanted


def _classes(tmp_path: Path, code: str, kind: type[Sharded] | type[Called]) -> list[str]:
    found = program(tmp_path, code)
    classes = [found.traces[0].modules[one.module].class_name for one in events(found, kind)]
    return [name for name in classes if name != "Net"]
