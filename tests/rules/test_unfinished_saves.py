"""FSDP317 where the program keeps the result of an asynchronous save."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
group = dist.new_group(backend="gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def state():
    return {"model": get_model_state_dict(model)}


def train(step):
    model(torch.randn(4, 8)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Checkpointer:
    def __init__(self):
        self.future = None

    def finish(self):
        if self.future is not None:
            self.future.result()
            self.future = None

    def save(self, step):
        self.finish()
        self.future = dcp.async_save(state(), checkpoint_id=f"step-{step}", process_group=group)

    def save_without_wait(self, step):
        self.future = dcp.async_save(state(), checkpoint_id=f"step-{step}", process_group=group)

    def load(self, step):
        dcp.load(state(), checkpoint_id=f"step-{step}", process_group=group)


checkpointer = Checkpointer()
"""


@pytest.mark.parametrize(
    "body",
    [
        """
        for step in range(3):
            train(step)
            checkpointer.save(step)
        checkpointer.load(2)
        """,
        """
        for step in range(3):
            train(step)
            checkpointer.save_without_wait(step)
        checkpointer.finish()
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        train(1)
        dcp.load(state(), checkpoint_id="last")
        future.result()
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        dist.barrier()
        dist.destroy_process_group()
        """,
        """
        futures = []
        for step in range(3):
            futures.append(dcp.async_save(state(), checkpoint_id=f"step-{step}"))
        for future in futures:
            future.result()
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        torch.save({"step": 1}, "step.pt")
        dist.destroy_process_group()
        """,
        """
        begun = {}
        for step, batch in enumerate(batches):
            train(step)
            if "save" in begun and begun["save"] is not None:
                begun["save"].result()
            begun["save"] = dcp.async_save(state(), checkpoint_id=f"step-{step}")
            batches.set_epoch(step)
            print(batch["rows"].numel(), batch.items())
        dist.destroy_process_group()
        """,
    ],
)
def test_used_before_the_wait(tmp_path: Path, body: str) -> None:
    assert len(findings(program(tmp_path, body, header=HEADER), "FSDP317")) == 1


@pytest.mark.parametrize(
    "body",
    [
        """
        for step in range(3):
            train(step)
            checkpointer.save(step)
        checkpointer.finish()
        checkpointer.load(2)
        """,
        """
        future = None
        for step in range(3):
            train(step)
            if future is not None:
                future.result()
            future = dcp.async_save(state(), checkpoint_id=f"step-{step}")
        future.result()
        dist.destroy_process_group()
        """,
        """
        dcp.async_save(state(), checkpoint_id="last").result()
        dcp.load(state(), checkpoint_id="last")
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        while not future.done():
            time.sleep(1)
        dcp.load(state(), checkpoint_id="last")
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        wait_for(future)
        dist.destroy_process_group()
        """,
        """
        future = dcp.async_save(state(), checkpoint_id="last")
        if future:
            future.result()
        dist.destroy_process_group()
        """,
        """
        import concurrent.futures
        future = dcp.async_save(state(), checkpoint_id="last")
        concurrent.futures.wait([future])
        dist.destroy_process_group()
        """,
        """
        begun = {}
        begun["save"] = dcp.async_save(state(), checkpoint_id="last")
        close_all(begun)
        dist.destroy_process_group()
        """,
        """
        checkpointer.save(1)
        close_all(checkpointer)
        dist.destroy_process_group()
        """,
        """
        from managers import make_manager
        manager = make_manager()
        manager.begun = dcp.async_save(state(), checkpoint_id="last")
        manager.close()
        dist.destroy_process_group()
        """,
        """
        import asyncio
        future = dcp.async_save(state(), checkpoint_id="last")
        async def end():
            await asyncio.wrap_future(future)
        asyncio.run(end())
        dist.destroy_process_group()
        """,
        """
        begun = {}
        def save(step, asynchronous):
            if asynchronous and any(p.numel() > 9 for p in model.parameters()):
                asynchronous = False
            if asynchronous:
                if "save" in begun and begun["save"] is not None:
                    begun["save"].result()
                begun["save"] = dcp.async_save(state(), checkpoint_id=f"step-{step}")
            else:
                dcp.save(state(), checkpoint_id=f"step-{step}")
        import sys
        for step in range(3):
            train(step)
            save(step, len(sys.argv) > 1)
        if "save" in begun and begun["save"] is not None:
            begun["save"].result()
        """,
        """
        from concurrent.futures import Future
        def save(step) -> Future:
            return dcp.async_save(state(), checkpoint_id=f"step-{step}")
        futures = [save(0)]
        for one in futures:
            one.result()
        dcp.save(state(), checkpoint_id="last")
        """,
    ],
)
def test_awaited(tmp_path: Path, body: str) -> None:
    assert findings(program(tmp_path, body, header=HEADER), "FSDP317") == []
