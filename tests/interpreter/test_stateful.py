"""Objects that a distributed checkpoint asks for their states."""

from __future__ import annotations

import textwrap
from pathlib import Path

from fsdplint.interpreter import load
from fsdplint.trace import Loaded, Saved, StateLoaded, StateTaken, Trace

PROGRAM = """
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

class Training:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )

class Reader:
    def state_dict(self):
        return get_state_dict(model, optimizer)

model = torch.nn.Linear(2, 2)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters())
training = Training(model, optimizer)
"""


def traced(folder: Path, text: str) -> Trace:
    path = folder / "train.py"
    path.write_text(PROGRAM + textwrap.dedent(text))
    return load([path]).traces[0]


def test_saving_takes_the_states_of_an_object(tmp_path: Path) -> None:
    trace = traced(tmp_path, 'dcp.save({"training": training}, checkpoint_id="folder")')
    taken = {event.state for event in trace.of(StateTaken)}
    (saved,) = trace.of(Saved)
    assert taken and set(saved.states) == taken


def test_loading_fills_and_gives_back_the_states(tmp_path: Path) -> None:
    trace = traced(tmp_path, 'dcp.load({"training": training}, checkpoint_id="folder")')
    (loaded,) = trace.of(Loaded)
    assert set(loaded.states) == {event.state for event in trace.of(StateTaken)}
    loads = list(trace.of(StateLoaded))
    assert loads and {event.state for event in loads} <= set(loaded.states)
    assert all(event.index > loaded.index for event in loads)


def test_an_object_with_one_of_the_methods_is_not_asked(tmp_path: Path) -> None:
    trace = traced(tmp_path, 'dcp.save({"reader": Reader()}, checkpoint_id="folder")')
    assert not list(trace.of(StateTaken))
    assert len(list(trace.of(Saved))) == 1


def test_the_old_function_asks_no_object(tmp_path: Path) -> None:
    trace = traced(
        tmp_path,
        """
        dcp.save_state_dict({"training": training}, dcp.FileSystemWriter("folder"))
        """,
    )
    assert not list(trace.of(StateTaken))
