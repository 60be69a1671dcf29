"""The run in which each setting has its default, but for those that shard a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import ScalerBuilt, Sharded, TensorParallel

CODE = """
import argparse
import random
from torch.distributed.device_mesh import init_device_mesh

parser = argparse.ArgumentParser()
parser.add_argument("--resume"{default})
parser.add_argument("--tp", type=int)
parser.add_argument("--fsdp", action="store_true")
args = parser.parse_args()
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
place = dist.get_rank()
model = nn.Linear(4, 4)
if settings["tp"] > 1:
    parallelize_module(model, mesh["tp"], ColwiseParallel())
if args.fsdp:
    fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if args.resume is not None:
    place = torch.load(args.resume)["place"]
numbers = random.Random(place)
for step in range(9):
    model(torch.tensor([numbers.random() for _ in range(4)])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
IMPORTS = "from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module\n"


KEY = "argparse.ArgumentParser.parse_args().resume is None"


PARSED = {
    "none": "args = parser.parse_args()",
    "list": "args = parser.parse_args(None)",
    "known": "args, _ = parser.parse_known_args()",
    "first": "args = parser.parse_known_args(None)[0]",
    "function": "def read(argv=None):\n    return parser.parse_args(argv)\nargs = read()",
}


@pytest.mark.parametrize("default", ["", ", default=None"])
@pytest.mark.parametrize("form", PARSED)
def test_the_default_needs_no_combination_of_other_settings(
    tmp_path: Path, form: str, default: str
) -> None:
    code = CODE.format(default=default).replace("args = parser.parse_args()", PARSED[form])
    found = program(tmp_path, IMPORTS + code)
    usual = [
        trace
        for trace in found.traces
        if trace.decisions.get(KEY) and any(True for _ in trace.of(TensorParallel))
    ]
    assert usual and all(any(True for _ in trace.of(Sharded)) for trace in usual)
    assert findings(found, "FSDP519")


def test_other_data_in_another_configuration_contradict(tmp_path: Path) -> None:
    code = CODE.format(default="").replace(
        "numbers = random", "if args.tp:\n    place = mesh['dp'].get_local_rank()\nnumbers = random"
    )
    assert not findings(program(tmp_path, IMPORTS + code), "FSDP519")


def test_a_scaler_whose_switch_keeps_its_default(tmp_path: Path) -> None:
    body = """
        from dataclasses import dataclass

        @dataclass
        class Options:
            scale: bool = False

        options = Options()
        model = Net()
        scaler = torch.amp.GradScaler("cuda", enabled=options.scale)
        """
    assert [event.enabled for event in events(program(tmp_path, body), ScalerBuilt)] == [False]
