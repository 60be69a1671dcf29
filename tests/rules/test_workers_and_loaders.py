"""Programs with Ray's workers, torchdata's loaders, and policies that get one class."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code


def lines(folder: Path, text: str, code: str) -> list[int]:
    (folder / "main.py").write_text(text)
    rule = rule_by_code(code)
    assert rule is not None
    return [one.site.location().line for one in check(load([folder / "main.py"]), [rule()])]


WORKER = """\
import ray.train
import torch
import torch.distributed as dist
from ray.air import session
from ray.train import get_context
from torch import nn
from torch.distributed.fsdp import fully_shard


def work(config):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    {before}
    if {test}:
        dist.barrier()


work({{}})
"""


@pytest.mark.parametrize(
    ("before", "test", "found"),
    [
        ("context = ray.train.get_context()", "context.get_world_rank() == 0", True),
        ("number = ray.train.get_context().get_world_rank()", "number == 0", True),
        ("number = session.get_world_rank()", "not number", True),
        ("local = get_context().get_local_rank()", "local == 0", True),
        ("count = get_context().get_world_size()", "count > 1", False),
        ("count = session.get_world_size()", "count > 1", False),
        ("name = get_context().get_trial_name()", "name == 'main'", False),
    ],
)
def test_ranks_of_workers(tmp_path: Path, before: str, test: str, found: bool) -> None:
    assert lines(tmp_path, WORKER.format(before=before, test=test), "FSDP501") == [17] * found


LOADER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DistributedSampler, TensorDataset
{imported}

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.ones(8, 2))
sampler = DistributedSampler(data, shuffle=True)
loader = {name}(data, batch_size=2, sampler=sampler)
loader.load_state_dict(torch.load("place.pt"))
for epoch in range(3):
    {epoch}
    for (batch,) in loader:
        loss = model(batch).sum()
        if torch.isnan(loss){skip}:
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(loader.state_dict(), "place.pt")
"""

STATEFUL = [
    ("from torchdata.stateful_dataloader import StatefulDataLoader", "StatefulDataLoader"),
    ("import torchdata.stateful_dataloader as sd", "sd.StatefulDataLoader"),
]


@pytest.mark.parametrize(("imported", "name"), STATEFUL)
@pytest.mark.parametrize(
    ("epoch", "skip", "code", "found"),
    [
        ("pass", ".any() and False", "FSDP512", [16]),
        ("sampler.set_epoch(epoch)", ".any() and False", "FSDP512", []),
        ("sampler.set_epoch(epoch)", ".any()", "FSDP501", [21]),
    ],
)
def test_stateful_loaders(
    tmp_path: Path, imported: str, name: str, epoch: str, skip: str, code: str, found: list[int]
) -> None:
    text = LOADER.format(imported=imported, name=name, epoch=epoch, skip=skip)
    assert bool(lines(tmp_path, text, code)) == bool(found)


def test_a_stateful_sampler_is_a_distributed_one(tmp_path: Path) -> None:
    imported = "from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler"
    name = "torch.utils.data.DataLoader"
    text = LOADER.format(imported=imported, name=name, epoch="pass", skip=".any()")
    text = text.replace("= DistributedSampler(", "= StatefulDistributedSampler(")
    assert lines(tmp_path, text, "FSDP512")
    assert lines(tmp_path, text, "FSDP501")


POLICY = """\
import functools
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from settings import BLOCKS, blocks

model = AutoModelForCausalLM.from_pretrained("gpt2")
policy = {policy}
model = FSDP(model, auto_wrap_policy=policy)
"""
_PARTIAL = "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={})"


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (_PARTIAL.format("GPT2Block"), [10]),
        ("ModuleWrapPolicy(GPT2Block)", [10]),
        (_PARTIAL.format("{GPT2Block}"), []),
        (_PARTIAL.format("BLOCKS"), []),
        (_PARTIAL.format("blocks"), []),
        ("ModuleWrapPolicy([GPT2Block])", []),
    ],
)
def test_one_class_of_a_library(tmp_path: Path, policy: str, found: list[int]) -> None:
    assert lines(tmp_path, POLICY.format(policy=policy), "FSDP133") == found
