"""What the recorder writes of an FSDP1 and an FSDP2 program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from recorded_programs import MODEL, at, events, lines, names
from two_ranks import Outcome, TwoRanks

from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    Gathered,
    MethodRegistered,
    OptimizerBuilt,
    OptimizerStepped,
    Ranks,
    Sharded,
    SyncSwitched,
)

FSDP2 = (
    MODEL
    + """
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
model = Net()
early = torch.optim.SGD(model.parameters(), lr=0.1)  # line: early
for block in model.blocks:
    fully_shard(block)  # line: blocks
fully_shard(model, reshard_after_forward=False)  # line: root
optimizer = torch.optim.AdamW([
    {"params": [p for n, p in model.named_parameters() if n.startswith("blocks")]},
    {"params": model.head.parameters(), "weight_decay": 0.0},
])
for step in range(2):
    model.set_requires_gradient_sync(step == 1)  # line: switch
    loss = model(x).sum()  # line: call
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # line: clip
    optimizer.step()
    optimizer.zero_grad()
model.size()
model.unshard()
model.reshard()
"""
)


@pytest.fixture(scope="module")
def fsdp2(two_ranks: TwoRanks) -> Outcome:
    outcome = two_ranks.run(FSDP2)
    assert outcome.status == "ok", str(outcome)
    assert [record.troubles for record in outcome.records] == [[], []]
    return outcome


def test_sharding_is_recorded_with_its_modules(fsdp2: Outcome) -> None:
    sharded = events(fsdp2, Sharded)
    assert lines(sharded) == [at(fsdp2, "blocks"), at(fsdp2, "blocks"), at(fsdp2, "root")]
    assert names(fsdp2, tuple(event.module for event in sharded)) == ["Linear", "Linear", "Net"]
    assert sharded[2].options == {"reshard_after_forward": False}
    tree = fsdp2.trace.submodules(sharded[2].module)
    assert {sharded[0].module, sharded[1].module} <= set(tree)


def test_an_optimizer_is_tied_to_the_modules_of_its_parameters(fsdp2: Outcome) -> None:
    early, late = events(fsdp2, OptimizerBuilt)
    root = events(fsdp2, Sharded)[2].module
    assert early.modules == (root,) and early.complete  # built on the parameters before sharding
    assert late.modules == (root,) and late.complete  # two groups, DTensor parameters
    assert early.site.location().line == at(fsdp2, "early")
    assert late.class_name == "AdamW"


def test_calls_have_the_line_of_the_call_and_what_they_are_inside(fsdp2: Outcome) -> None:
    called = events(fsdp2, Called)
    root = events(fsdp2, Sharded)[2].module
    outer = [event for event in called if event.module == root]
    assert lines(outer) == [at(fsdp2, "call")] * 2
    assert all(event.via == "call" and event.inside is None for event in outer)
    assert all(event.in_loop and event.collective for event in outer)
    inner = [event for event in called if event.inside == outer[0].index]
    assert len(inner) == 2  # the sharded blocks; the plain head is called as a part of the root


def test_columns_span_the_call(fsdp2: Outcome) -> None:
    clipped = events(fsdp2, Clipped)[0]
    where = clipped.site.location()
    assert where.line == where.end_line == at(fsdp2, "clip")
    if where.end_column > 1:  # Python 3.11 and later
        assert (where.column, where.end_column) == (
            5,
            5 + len("nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        )


def test_the_training_loop_is_recorded_in_order(fsdp2: Outcome) -> None:
    wanted = (SyncSwitched, BackwardRun, Clipped, OptimizerStepped)
    kinds = [event.kind for event in fsdp2.trace if isinstance(event, wanted)]
    assert kinds == [kind.kind for kind in wanted] * 2
    switched = events(fsdp2, SyncSwitched)
    assert [event.enabled for event in switched] == [False, True]
    assert {event.api for event in switched} == {"set_requires_gradient_sync"}
    clipped = events(fsdp2, Clipped)
    assert clipped[0].modules == (events(fsdp2, Sharded)[2].module,) and clipped[0].api == "utils"
    assert all(event.ranks is Ranks.ALL for event in fsdp2.trace)


def test_a_method_that_computes_nothing_is_not_a_call(fsdp2: Outcome) -> None:
    assert not [event for event in events(fsdp2, Called) if event.via == "size"]


def test_unshard_and_reshard(fsdp2: Outcome) -> None:
    assert [event.gathered for event in events(fsdp2, Gathered)] == [True, False]


def test_measures_of_each_step(fsdp2: Outcome) -> None:
    for record in fsdp2.records:
        assert [line["step"] for line in record.measures] == [1, 2]
        assert [len(line["losses"]) for line in record.measures] == [1, 1]
        # In the first step nothing was reduced: no parameter had a gradient.
        assert [line["updated"] for line in record.measures] == [0, 6]
        assert record.measures[1]["collectives"]["reduce_scatter"] == 3
    norms = [sum(r.measures[1]["gradients"]["sharded"] for r in fsdp2.records)]
    assert norms[0] > 0


def test_what_is_called_on_a_sharded_model_other_than_itself(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
model = fully_shard(Net())
register_fsdp_forward_method(model, "encode")
model.encode(x)  # line: encode
model(x)
try:
    model.no_sync()  # line: no_sync
except AttributeError as error:
    print(error)
hasattr(model, "clip_grad_norm_")
try:
    model.forward(x)  # line: forward
except RuntimeError:
    pass
model.reshard()
model.head(x)  # line: head
"""
    )
    outcome = two_ranks.run(program)
    called = {event.via: event for event in events(outcome, Called) if event.inside is None}
    assert called["encode"].site.location().line == at(outcome, "encode")
    assert called["forward"].site.location().line == at(outcome, "forward")
    head = [e for e in events(outcome, Called) if e.site.location().line == at(outcome, "head")]
    assert names(outcome, (head[0].module,)) == ["Linear"]
    assert [event.method for event in events(outcome, MethodRegistered)] == ["encode"]
    (switched,) = events(outcome, SyncSwitched)
    assert switched.api == "no_sync" and switched.site.location().line == at(outcome, "no_sync")
    assert "has no attribute 'no_sync'" in outcome.stdout
    assert not events(outcome, Clipped)  # hasattr asks, it does not clip


def test_the_optimizer_ends_the_program_after_the_wanted_steps(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(x).sum().backward()
    optimizer.step()
"""
    )
    outcome = two_ranks.run(program, steps=3, parameters=True)
    assert outcome.status == "ok", str(outcome)
    assert [len(record.measures) for record in outcome.records] == [3, 3]
    assert set(outcome.parameters) == {
        f"0:{name}.{part}"
        for name in ("blocks.0", "blocks.1", "head")
        for part in ("weight", "bias")
    }


def test_full_parameters_have_plain_names(two_ranks: TwoRanks) -> None:
    wrap = {
        "fsdp1": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
        "model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))\n",
        "fsdp2": "from torch.distributed.fsdp import fully_shard\n"
        "for block in model.blocks:\n    fully_shard(block)\nfully_shard(model)\n",
        "ddp": "model = nn.parallel.DistributedDataParallel(model)\n",
    }
    found = {}
    for name, text in wrap.items():
        program = (
            MODEL
            + "model = Net()\n"
            + text
            + "torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(x).sum().backward()\n"
        )
        outcome = two_ranks.run(program, parameters=True)
        assert outcome.status == "ok", str(outcome)
        found[name] = outcome.parameters
    assert set(found["fsdp1"]) == set(found["fsdp2"]) == set(found["ddp"])
    for key, tensor in found["ddp"].items():
        assert tensor.equal(found["fsdp1"][key]) and tensor.equal(found["fsdp2"][key])


def test_an_error_in_the_recorder_does_not_reach_the_program(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
class Odd(nn.Linear):
    def modules(self):
        raise RuntimeError("not for you")

odd = Odd(8, 8)
print(copy_of := odd.to(torch.float32) is odd, odd(x).shape)
"""
    )
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    assert "True torch.Size([4, 8])" in outcome.stdout


def test_the_watchers_are_in_place_where_safetensors_is_installed(tmp_path: Path) -> None:
    """Its functions are watched beside torch's, not in place of them."""
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors/__init__.py").write_text("")
    (tmp_path / "safetensors/torch.py").write_text(
        "def save_file(tensors, filename): ...\ndef load_file(filename): ...\n"
    )
    code = """
        from fsdplint.runtime.launch.runner import prepare
        prepare()
        import safetensors.torch
        import torch.distributed as dist
        import torch.distributed.fsdp as fsdp
        for function in (
            dist.destroy_process_group, fsdp.fully_shard, safetensors.torch.save_file
        ):
            assert hasattr(function, "__wrapped__"), function
    """
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
