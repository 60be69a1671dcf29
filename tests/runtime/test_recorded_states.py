"""What the recorder writes of states, files and FSDP1's wrapper."""

from __future__ import annotations

from recorded_programs import MODEL, at, events, lines, names
from two_ranks import TwoRanks

from fsdplint.trace import (
    Called,
    Clipped,
    Collective,
    DeviceSet,
    Fsdp1Used,
    Layout,
    Loaded,
    ModuleBuilt,
    ModuleCopied,
    ModuleMoved,
    OptimizerBuilt,
    ProcessGroupInit,
    Ranks,
    Saved,
    StateLoaded,
    StateTaken,
    Wrapped,
)


def test_states_and_files(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
import copy, os
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict)
from torch.distributed.fsdp import fully_shard
model = Net().to(torch.float32)
average = copy.deepcopy(model)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
model(x).sum().backward()
optimizer.step()
own = model.state_dict()
options = StateDictOptions(full_state_dict=True)
full = get_model_state_dict(model, options=options)
state = get_optimizer_state_dict(model, optimizer)
plain = average.state_dict()
if dist.get_rank() == 0:
    torch.save({"model": full, "step": 1}, "full.pt")  # line: save
torch.save(own, f"own{dist.get_rank()}.pt")
dcp.save({"model": own}, checkpoint_id="dcp")
dist.barrier()
read = torch.load("full.pt")
set_model_state_dict(model, read["model"], options=options)
model.load_state_dict(own)
"""
    )
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    taken = events(outcome, StateTaken)
    assert [(event.api.split(".")[-1], event.layout) for event in taken] == [
        ("state_dict", Layout.SHARDED),
        ("get_model_state_dict", Layout.FULL),
        ("get_optimizer_state_dict", Layout.SHARDED),
        ("state_dict", Layout.PLAIN),
    ]
    assert [event.collective for event in taken] == [False, True, False, False]
    full, own, distributed = events(outcome, Saved)
    assert full.states == (taken[1].state,) and full.layouts == (Layout.FULL,)
    assert full.ranks is Ranks.ONE and full.site.location().line == at(outcome, "save")
    assert own.states == (taken[0].state,) and own.layouts == (Layout.SHARDED,)
    assert own.ranks is Ranks.ALL
    assert distributed.api == "torch.distributed.checkpoint.save" and distributed.collective
    assert [event.api for event in events(outcome, Loaded)] == ["torch.load"]
    loaded = events(outcome, StateLoaded)
    assert loaded[1].state == taken[0].state and loaded[1].layout is Layout.SHARDED
    (copied,) = events(outcome, ModuleCopied)
    assert names(outcome, (copied.module, copied.copy)) == ["Net", "Net"]
    assert copied.copy != copied.module
    (moved,) = events(outcome, ModuleMoved)
    assert (moved.method, moved.dtype) == ("to", "torch.float32")
    assert [event.api for event in events(outcome, Collective)] == ["torch.distributed.barrier"]


def test_fsdp1(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
from functools import partial
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP, FullStateDictConfig, MixedPrecision, ShardingStrategy,
    StateDictType)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
torch.cuda.set_device(dist.get_rank())
inner = Net()
model = FSDP(  # line: wrap
    inner,
    auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
    sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with model.no_sync():
    model(x).sum().backward()
model(x).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
    state = model.state_dict()
    optimizer_state = FSDP.optim_state_dict(model, optimizer)
with FSDP.summon_full_params(model):
    print(model.head.weight.shape)
try:
    model.encode(x)  # line: encode
except RuntimeError:
    pass
"""
    )
    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    assert [record.troubles for record in outcome.records] == [[], []]
    wrapped = events(outcome, Wrapped)
    root = wrapped[0]
    assert lines(wrapped) == [at(outcome, "wrap")] * 4
    assert names(outcome, (root.module, root.inner)) == ["FullyShardedDataParallel", "Net"]
    assert root.options["sharding_strategy"] == (
        "torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP"
    )
    assert "torch.bfloat16" in str(root.options["mixed_precision"])
    assert {outcome.trace.modules[event.inner].class_name for event in wrapped[1:]} == {"Linear"}
    inside = outcome.trace.submodules(root.module)
    assert all(event.module in inside for event in wrapped)
    (optimizer,) = events(outcome, OptimizerBuilt)
    assert optimizer.modules == (root.module,)
    (clipped,) = events(outcome, Clipped)
    assert clipped.api == "method" and clipped.modules == (root.module,)
    encode = [event for event in events(outcome, Called) if event.via == "encode"]
    assert [event.module for event in encode] == [root.module]
    taken = events(outcome, StateTaken)
    assert [event.layout for event in taken] == [Layout.FULL, Layout.FULL]
    assert taken[0].collective
    assert [event.api for event in events(outcome, Fsdp1Used)] == [
        "FSDP.state_dict_type",
        "FSDP.optim_state_dict",
        "FSDP.summon_full_params",
    ]
    assert [event.device for event in events(outcome, DeviceSet)] == ["0"]  # rank 0 speaks for all
    assert events(outcome, ProcessGroupInit)[0].backend == "gloo"
    built = {e.module: e for e in events(outcome, ModuleBuilt)}
    assert not built[root.inner].on_meta


def test_which_states_of_fsdp1_communicate(two_ranks: TwoRanks) -> None:
    program = (
        MODEL
        + """
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
    set_optimizer_state_dict)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
model = FSDP(Net(), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters())
model(x).sum().backward()
optimizer.step()
for kind in StateDictType:
    with FSDP.state_dict_type(model, kind):
        model.load_state_dict(model.state_dict())
with FSDP.summon_full_params(model):
    model.state_dict()
optimizer.load_state_dict(optimizer.state_dict())
for full in (False, True):
    options = StateDictOptions(full_state_dict=full)
    state = get_model_state_dict(model, options=options)
    set_model_state_dict(model, state, options=options)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    set_optimizer_state_dict(model, optimizer, state, options=options)
"""
    )

    def named(event: StateTaken | StateLoaded) -> str:
        return event.api.rpartition(".")[2]

    outcome = two_ranks.run(program)
    assert outcome.status == "ok", str(outcome)
    taken = [(named(e), e.layout.value, e.collective) for e in events(outcome, StateTaken)]
    assert taken == [
        ("state_dict", "full", True),
        ("state_dict", "local", True),
        ("state_dict", "sharded", True),
        ("state_dict", "full", False),
        ("state_dict", "local", False),
        ("get_model_state_dict", "sharded", True),
        ("get_optimizer_state_dict", "sharded", True),
        ("get_model_state_dict", "full", True),
        ("get_optimizer_state_dict", "full", True),
    ]
    loaded = [(named(e), e.collective) for e in events(outcome, StateLoaded)]
    assert loaded == [
        ("load_state_dict", True),
        ("load_state_dict", False),
        ("load_state_dict", True),
        ("load_state_dict", False),
        ("set_model_state_dict", True),
        ("set_optimizer_state_dict", True),
        ("set_model_state_dict", True),
        ("set_optimizer_state_dict", False),
    ]
