"""Checkpoints: what FSDP1 has saved, the migrated program loads, and goes on as FSDP1 does."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from two_ranks import TwoRanks

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

PROGRAM = """\
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._shard.checkpoint as old_dcp
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


SAVE


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = FSDP(Net(), GROUPauto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
COMPILEoptimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
first = 0
if "resume" in sys.argv:
    load(model, optimizer)
    first = 3
for step in range(first, 6):
    generator = torch.Generator().manual_seed(10 * step + rank)
    loss = model(torch.randn(4, 8, generator=generator)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= 3:
        print(f"loss {step} {loss.item():.7f}")
    elif step == 2:
        save(model, optimizer)
        dist.barrier()
dist.destroy_process_group()
"""

KINDS = {
    "whole": """
        WHOLE = StateDictType.FULL_STATE_DICT


        def save(model, optimizer):
            config = FullStateDictConfig(rank0_only=True)
            optim_config = FullOptimStateDictConfig(rank0_only=True)
            with FSDP.state_dict_type(model, WHOLE, config, optim_config):
                state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
            if dist.get_rank() == 0:
                torch.save(state, "checkpoint.pt")


        def load(model, optimizer):
            state = torch.load("checkpoint.pt")
            with FSDP.state_dict_type(model, WHOLE):
                model.load_state_dict(state["model"])
                optimizer.load_state_dict(
                    FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
                )
        """,
    "the first rank's": """
        def save(model, optimizer):
            state = FSDP.full_optim_state_dict(model, optimizer)
            with FSDP.state_dict_type(
                model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)
            ):
                weights = model.state_dict()
            if dist.get_rank() == 0:
                torch.save(state, "optimizer.pt")
                torch.save(weights, "model.pt")


        def load(model, optimizer):
            model.load_state_dict(torch.load("model.pt"))
            state = torch.load("optimizer.pt") if dist.get_rank() == 0 else None
            state = FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer)
            optimizer.load_state_dict(state)
        """,
    "sharded": """
        def save(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
            old_dcp.save_state_dict(state, dcp.FileSystemWriter("checkpoint"))


        def load(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"model": model.state_dict()}
                old_dcp.load_state_dict(state, dcp.FileSystemReader("checkpoint"))
                model.load_state_dict(state["model"])
                loaded = load_sharded_optimizer_state_dict(
                    model_state_dict=state["model"],
                    optimizer_key="optimizer",
                    storage_reader=dcp.FileSystemReader("checkpoint"),
                )
                optimizer.load_state_dict(
                    FSDP.optim_state_dict_to_load(model, optimizer, loaded["optimizer"])
                )
        """,
    "sharded, in one variable": """
        def save(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
            old_dcp.save_state_dict(state, dcp.FileSystemWriter("checkpoint"))


        def load(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                weights = {"model": model.state_dict()}
                state = load_sharded_optimizer_state_dict(
                    model_state_dict=weights["model"],
                    optimizer_key="optimizer",
                    storage_reader=dcp.FileSystemReader("checkpoint"),
                )
                state = state["optimizer"]
                flat = FSDP.optim_state_dict_to_load(
                    model=model, optim=optimizer, optim_state_dict=state
                )
                optimizer.load_state_dict(flat)
                old_dcp.load_state_dict(weights, dcp.FileSystemReader("checkpoint"))
                model.load_state_dict(weights["model"])
        """,
    "whole, put into rank 0's state": """
        def save(model, optimizer):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            optim_config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config, optim_config):
                weights = model.state_dict()
                state = FSDP.optim_state_dict(model, optimizer)
            if dist.get_rank() == 0:
                torch.save({key: weights[key] for key in sorted(weights, reverse=True)}, "model.pt")
                torch.save(state, "optimizer.pt")


        def load(model, optimizer):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                current = model.state_dict()
                current.update(torch.load("model.pt"))
                model.load_state_dict(current, strict=False)
            state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load("optimizer.pt"))
            optimizer.load_state_dict(state)
        """,
    "of a compiled model": """
        def save(model, optimizer):
            config = FullStateDictConfig(rank0_only=True)
            optim_config = FullOptimStateDictConfig(rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config, optim_config):
                state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
            if dist.get_rank() == 0:
                torch.save(state, "whole.pt")
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {
                    "model": model.state_dict(),
                    "optimizer": FSDP.sharded_optim_state_dict(model, optimizer),
                }
            old_dcp.save_state_dict(state, dcp.FileSystemWriter("sharded"))


        def load(model, optimizer):
            state = torch.load("whole.pt")
            model.load_state_dict(state["model"])
            optim = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
            optimizer.load_state_dict(optim)
            values = [values["momentum_buffer"] for values in optimizer.state.values()]
            optimizer.state.clear()
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"model": model.state_dict()}
                old_dcp.load_state_dict(state, dcp.FileSystemReader("sharded"))
                model.load_state_dict(state["model"])
                loaded = load_sharded_optimizer_state_dict(
                    model_state_dict=model.state_dict(),
                    optimizer_key="optimizer",
                    storage_reader=dcp.FileSystemReader("sharded"),
                    planner=dcp.DefaultLoadPlanner(),
                )
            loadable = FSDP.optim_state_dict_to_load(model, optimizer, loaded["optimizer"])
            optimizer.load_state_dict(loadable)
            for value, other in zip(values, optimizer.state.values(), strict=True):
                assert torch.equal(value, other["momentum_buffer"])
        """,
    "of a group": """
        def save(model, optimizer):
            config = FullStateDictConfig(rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                state = model.state_dict()
                if dist.get_rank() == 0:
                    torch.save(state, "model.pt")
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"optimizer": FSDP.optim_state_dict(model, optimizer)}
            dcp.save(state, checkpoint_id="optimizer")


        def load(model, optimizer):
            model.load_state_dict(torch.load("model.pt"))
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                state = {"optimizer": FSDP.optim_state_dict(model, optimizer)}
                dcp.load(state, checkpoint_id="optimizer")
                optimizer.load_state_dict(
                    FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
                )
        """,
}


# Parts of it and, in one configuration, all of it. The names are what matters, so nothing is traced.
COMPILE = """\
torch.compiler.set_stance("force_eager")
for name, block in list(model.blocks.named_children()):
    model.blocks.register_module(name, torch.compile(block))
if "plain" not in sys.argv:
    model = torch.compile(model)
"""


# Each rank's own part, or one rank's: FSDP1's flat parts are of no use to the migrated program, but
# what this saves itself it loads.
OWN = {
    "local": """
        def save(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, f"{dist.get_rank()}.pt")


        def load(model, optimizer):
            state = torch.load(f"{dist.get_rank()}.pt")
            with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
                model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        """,
    "rank 0's optimizer": """
        def save(model, optimizer):
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                weights = model.state_dict()
            if dist.get_rank() == 0:
                torch.save({"model": weights, "optimizer": optimizer.state_dict()}, "all.pt")


        def load(model, optimizer):
            state = torch.load("all.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        """,
}


def programs(kind: str, path: Path) -> tuple[str, str]:
    """A program that saves and loads in this way, and what becomes of it."""
    before = PROGRAM.replace("SAVE", textwrap.dedent({**KINDS, **OWN}[kind]).strip())
    group = "process_group=dist.new_group([0, 1]), " if kind == "of a group" else ""
    if kind == "of a compiled model":
        # FSDP1 on the CPU mixes up the states of an optimizer that has more than one for a parameter.
        before = before.replace("AdamW(model.parameters()", "SGD(model.parameters(), momentum=0.9")
        before = before.replace("GROUP", "use_orig_params=True, ").replace("COMPILE", COMPILE)
    before = before.replace("COMPILE", "").replace("GROUP", group)
    path.write_text(before, encoding="utf-8")
    result = fix(Workspace([path]), [rule() for rule in all_rules()])
    after = result.texts[path]
    assert "FullyShardedDataParallel" not in after
    assert "dcp.save_state_dict" not in after and "dcp.load_state_dict" not in after
    return before, after


@pytest.mark.parametrize("kind", list(KINDS))
def test_what_fsdp1_has_saved_is_loaded(kind: str, tmp_path: Path, two_ranks: TwoRanks) -> None:
    before, after = programs(kind, tmp_path / "train.py")
    saved = two_ranks.run(before)
    assert saved.status == "ok", str(saved)
    assert saved.stdout.count("loss") == 6
    resumed = two_ranks.run(after, args=["resume"], continuing=saved)
    assert resumed.status == "ok", str(resumed)
    assert resumed.stdout == saved.stdout


@pytest.mark.parametrize("kind", list(OWN))
def test_what_the_migrated_program_saves_it_loads(
    kind: str, tmp_path: Path, two_ranks: TwoRanks
) -> None:
    before, after = programs(kind, tmp_path / "train.py")
    trained = two_ranks.run(before)
    saved = two_ranks.run(after)
    assert saved.status == "ok", str(saved)
    resumed = two_ranks.run(after, args=["resume"], continuing=saved)
    assert resumed.status == "ok", str(resumed)
    assert trained.stdout.count("loss") == 6
    assert trained.stdout == saved.stdout == resumed.stdout
