"""Fabric with the strategy whose function shards the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.trace import (
    Called,
    Clipped,
    Collective,
    Escaped,
    MeshBuilt,
    OptimizerBuilt,
    Sharded,
    SyncSwitched,
)

HEAD = """\
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy


def parallelize(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


strategy = ModelParallelStrategy(STRATEGY)
fabric = Fabric(devices=4, strategy=strategy)
fabric.launch()
"""
GIVEN = "parallelize_fn=parallelize, data_parallel_size=4, tensor_parallel_size=1"
SETUP = "model = fabric.setup(Net())\n"


def head(strategy: str = GIVEN) -> str:
    return HEAD.replace("STRATEGY", strategy)


@pytest.mark.parametrize("strategy", [GIVEN, "parallelize, 4, 1"])
@pytest.mark.parametrize("method", ["setup", "setup_module"])
def test_the_function_shards_what_is_set_up(tmp_path: Path, strategy: str, method: str) -> None:
    found = program(tmp_path, f"{head(strategy)}model = fabric.{method}(Net())\nmodel(x)\n")
    trace = found.traces[0]
    *blocks, root = trace.of(Sharded)
    assert class_of(found, root.module) == "Net"
    assert {class_of(found, block.module) for block in blocks} == {"Block"}
    assert all(event.dims == ("data_parallel",) for event in trace.of(Sharded))
    outer = [event for event in trace.of(Called) if event.inside is None]
    assert [event.module for event in outer] == [root.module]
    assert not list(trace.of(Escaped))


def test_the_mesh_has_the_sizes_of_the_strategy(tmp_path: Path) -> None:
    found = program(tmp_path, f"{head()}{SETUP}other = fabric.setup(Net())\n")
    (mesh,) = found.traces[0].of(MeshBuilt)
    assert mesh.shape == (4, 1)
    assert mesh.dim_names == ("data_parallel", "tensor_parallel")


def test_an_optimizer_that_is_built_before(tmp_path: Path) -> None:
    body = (
        f"{head()}model = Net()\noptimizer = torch.optim.SGD(model.parameters())\n"
        "model, optimizer = fabric.setup(model, optimizer)\nmodel(x).sum().backward()\n"
        "optimizer.step()\n"
    )
    assert findings(program(tmp_path, body), "FSDP103")


def test_an_optimizer_that_is_built_after(tmp_path: Path) -> None:
    body = (
        f"{head()}{SETUP}optimizer = torch.optim.SGD(model.parameters())\n"
        "optimizer = fabric.setup_optimizers(optimizer)\n"
    )
    assert not findings(program(tmp_path, body), "FSDP103")
    (built,) = events(program(tmp_path, body), OptimizerBuilt)
    assert built.complete


def test_methods_of_fabric_on_a_sharded_model(tmp_path: Path) -> None:
    body = (
        f"{head()}{SETUP}optimizer = torch.optim.SGD(model.parameters())\n"
        "with fabric.no_backward_sync(model, enabled=True):\n    fabric.backward(model(x).sum())\n"
        "fabric.clip_gradients(model, optimizer, max_norm=1.0)\n"
        "fabric.save('x', {'model': model})\n"
    )
    trace = program(tmp_path, body).traces[0]
    assert [event.api for event in trace.of(SyncSwitched)] == ["no_backward_sync"]
    assert all(event.collective for event in trace.of(Clipped))
    assert "Fabric.save" in [event.api for event in trace.of(Collective)]


def test_a_function_that_is_not_known(tmp_path: Path) -> None:
    found = program(tmp_path, f"{head('parallelize_fn=zoo.parallelize')}{SETUP}")
    assert list(events(found, Escaped))


@pytest.mark.parametrize("kind", ["ModelParallelStrategy", "FSDPStrategy"])
def test_a_test_of_the_class_of_the_strategy(tmp_path: Path, kind: str) -> None:
    test = (
        f"from lightning.fabric.strategies import {kind}\n"
        f"if isinstance(fabric.strategy, {kind}):\n    model(x)\n"
    )
    trace = program(tmp_path, f"{head()}{SETUP}{test}").traces[0]
    assert bool(list(trace.of(Called))) is (kind == "ModelParallelStrategy")
