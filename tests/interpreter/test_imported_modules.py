"""Modules of the project that a program imports, by statements and by names."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, program

from fsdplint.trace import (
    OptimizerBuilt,
    Sharded,
    Wrapped,
)


def test_files_of_the_project_are_followed(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from parallel import shard
        import lib.models as zoo

        model = shard(zoo.make())
        """,
        parallel="""
        from lib.compat import FSDP2 as _shard

        def shard(model):
            for layer in model.layers:
                _shard(layer)
            return _shard(model)
        """,
        lib____init__="",
        lib__compat="from torch.distributed.fsdp import fully_shard as FSDP2\n",
        lib__models="""
        from .blocks import *

        def make():
            return Model()
        """,
        lib__blocks="""
        from torch import nn

        class Layer(nn.Module):
            pass

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(Layer() for _ in range(3))
        """,
    )
    names = [class_of(found, e.module) for e in found.traces[0].of(Sharded)]
    assert names == ["Layer", "Model"]
    assert {Path(e.site.path).name for e in events(found, Sharded)} == {"parallel.py"}


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from one import thing\nmodel = FSDP(Net())\nthing(model)\n",
        one="from two import thing\n",
        two="from one import thing\n",
    )
    assert len(list(found.traces[0].of(Wrapped))) == 1


@pytest.mark.parametrize("module", ["", ".fully_sharded_data_parallel"])
def test_a_star_gives_fsdps_names(tmp_path: Path, module: str) -> None:
    star = f"from torch.distributed.fsdp{module} import *\n"
    found = program(tmp_path, star + "FullyShardedDataParallel(Net())\n")
    assert len(list(events(found, Wrapped))) == 1


NAMED = {
    "module": 'lib = importlib.import_module("torch.distributed.fsdp")\nlib.fully_shard(model)',
    "function": "from importlib import import_module\nNAME = 'torch.distributed.fsdp'\n"
    "import_module(NAME).fully_shard(model)",
    "relative": 'importlib.import_module(".fsdp", package="torch.distributed").fully_shard(model)',
    "above": 'importlib.import_module("..fsdp", "torch.distributed.tensor").fully_shard(model)',
    "file": 'importlib.import_module("parts.wrap").shard(model)',
    "file beside": 'importlib.import_module(".wrap", "parts").shard(model)',
}


@pytest.mark.parametrize("body", NAMED.values(), ids=NAMED)
def test_modules_that_are_imported_by_name(tmp_path: Path, body: str) -> None:
    wrap = """\
        from torch.distributed.fsdp import fully_shard
        def shard(m):
            fully_shard(m)
        """
    text = f"import importlib\nmodel = Net()\n{body}\n"
    found = program(tmp_path, text, parts__wrap=wrap)
    assert [class_of(found, e.module) for e in events(found, Sharded)] == ["Net"]


@pytest.mark.parametrize(
    "arguments", ["name()", '".fsdp"', '".fsdp", name()', '"....fsdp", "torch.distributed"', '""']
)
def test_imports_by_name_that_are_not_known(tmp_path: Path, arguments: str) -> None:
    text = f"import importlib\nimportlib.import_module({arguments}).fully_shard(Net())\n"
    assert list(events(program(tmp_path, text), Sharded)) == []


@pytest.mark.parametrize(
    ("steps", "sharded_first"),
    [
        ("sorted(STEPS.items(), reverse=True)", True),
        ("sorted(STEPS.items())", False),
        ("[(name, STEPS[name]) for name in sorted(STEPS, reverse=True)]", True),
        ("sorted(STEPS.items(), key=lambda item: order(item[0]))", None),
        ("sorted(STEPS.items(), reverse=backwards())", None),
    ],
)
def test_steps_run_in_the_order_of_their_names(
    tmp_path: Path, steps: str, sharded_first: bool | None
) -> None:
    found = program(
        tmp_path,
        f"""\
        from settings import backwards, order

        STEPS = {{}}


        def step(name):
            def put(function):
                STEPS[name] = function
                return function
            return put


        @step("optimizer")
        def make_optimizer(model):
            torch.optim.SGD(model.parameters(), lr=0.1)


        @step("shard")
        def shard(model):
            fully_shard(model)


        model = Net()
        for name, function in {steps}:
            function(model)
        """,
    )
    for trace in found.traces:
        built, sharded = list(trace.of(OptimizerBuilt)), list(trace.of(Sharded))
        if sharded_first is None:
            assert not built or not sharded
        else:
            assert (sharded[0].index < built[0].index) is sharded_first
