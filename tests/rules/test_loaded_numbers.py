"""FSDP324 for numbers in a dict that `dcp.load` fills, and the variables that they came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEADER = """\
import os
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

FOLDER = "checkpoint"
TOTAL = 8
dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)


def snapshot(step):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def restore(state):
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )


def train(step):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    dcp.save(snapshot(step), checkpoint_id=FOLDER)


"""


@pytest.mark.parametrize(
    "body",
    [
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for number in range(step, TOTAL):
            train(number)
        """,
        """
        def resume(step=0):
            if not os.path.isdir(FOLDER):
                return step
            state = snapshot(step)
            dcp.load(state, checkpoint_id=FOLDER)
            restore(state)
            return step

        for number in range(resume(), TOTAL):
            train(number)
        """,
        """
        step = 0
        if os.path.exists(FOLDER):
            state = snapshot(step)
            dcp.load(state, checkpoint_id=FOLDER)
            restore(state)
        while step < TOTAL:
            train(step)
            step += 1
        """,
        """
        class Trainer:
            def __init__(self):
                self.step = 0

            def resume(self):
                state = snapshot(self.step)
                dcp.load(state_dict=state, checkpoint_id=FOLDER)
                restore(state)

            def fit(self):
                while self.step < TOTAL:
                    train(self.step)
                    self.step += 1

        trainer = Trainer()
        trainer.resume()
        trainer.fit()
        """,
        """
        last = -1
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "progress": {"step": last}}
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for number in range(last + 1, TOTAL):
            train(number)
        """,
    ],
)
def test_the_old_number(tmp_path: Path, body: str) -> None:
    assert len(findings(program(tmp_path, body, header=HEADER), "FSDP324")) == 1


@pytest.mark.parametrize(
    "body",
    [
        """
        state = snapshot(0)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for number in range(state["step"], TOTAL):
            train(number)
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        step = state["step"] + 1
        while step < TOTAL:
            train(step)
            step += 1
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        step = state.get("step", 0)
        for number in range(step, TOTAL):
            train(number)
        """,
        """
        step = torch.tensor(0)
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for number in range(int(step), TOTAL):
            train(number)
        """,
        """
        step = 0
        state = snapshot(step)
        for number in range(step, TOTAL):
            train(number)
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        step = read_step(state)
        for number in range(step, TOTAL):
            train(number)
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        model, optimizer, step = state["model"], state["optimizer"], state["step"]
        for number in range(0, step):
            print(number)
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for key, value in state.items():
            if key == "step":
                step = value
        for number in range(step, TOTAL):
            train(number)
        """,
        """
        step = 0
        state = snapshot(step)
        dcp.load(state, checkpoint_id=FOLDER)
        restore(state)
        for number in range(TOTAL):
            train(number)
        """,
    ],
)
def test_the_number_of_the_dict(tmp_path: Path, body: str) -> None:
    assert findings(program(tmp_path, body, header=HEADER), "FSDP324") == []
