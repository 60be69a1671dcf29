"""Objects that only some ranks have, while the others have None."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Collective, GuardKind, Ranks
from fsdplint.trace.queries.rank_divergence import unmatched_collectives

HEAD = """\
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


class Logger:
    def log(self, value):
        print(value)


class Trainer:
    logger = None

    def __init__(self, logger):
        if logger is not None:
            self.logger = logger

    def step(self, loss):
        if self.logger:
            dist.all_reduce(loss)


@dataclass
class Report:
    logger: Logger | None = None


def make(rank):
    if rank != 0:
        return None
    return Logger()


def report(loss, logger=None):
    if logger is None:
        return
    dist.all_reduce(loss)
    logger.log(loss)


dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.zeros(1)
"""

IN_TEST = "\nif logger is not None:\n    dist.all_reduce(loss)\n"
ONE_RANK = {
    "object": "logger = Logger() if rank == 0 else None" + IN_TEST,
    "object by a statement": "logger = None\nif rank == 0:\n    logger = Logger()" + IN_TEST,
    "state": "logger = torch.load('x.pt') if rank == 0 else None" + IN_TEST,
    "module": "logger = nn.Linear(2, 2) if rank == 0 else None" + IN_TEST,
    "function": "logger = (lambda x: print(x)) if rank == 0 else None" + IN_TEST,
    "dict": "logger = {'log': Logger()} if rank == 0 else None" + IN_TEST,
    "from a function": "logger = make(rank)" + IN_TEST,
    "of a tuple": "logger, name = (Logger(), 'a') if rank == 0 else (None, 'b')" + IN_TEST,
    "in a tuple": "logger, name = Logger() if rank == 0 else None, 'a'" + IN_TEST,
    "in a dict": "parts = {'log': Logger() if rank == 0 else None}\nlogger = parts['log']"
    + IN_TEST,
    "with a type": "logger: Logger | None = Logger() if rank == 0 else None" + IN_TEST,
    "named in the test": (
        "if (logger := Logger() if rank == 0 else None) is not None:\n    dist.all_reduce(loss)\n"
    ),
    "truth": "logger = Logger() if rank == 0 else None\nif logger:\n    dist.all_reduce(loss)\n",
    "class": (
        "logger = Logger() if rank == 0 else None\n"
        "if isinstance(logger, Logger):\n    dist.all_reduce(loss)\n"
    ),
    "argument": "report(loss, Logger() if rank == 0 else None)",
    "keyword": "logger = Logger() if rank == 0 else None\nreport(loss, logger=logger)",
    "attribute over a default": "Trainer(make(rank)).step(loss)",
    "field": "logger = Report(make(rank)).logger" + IN_TEST,
}
NOT_THERE = {
    "replaced": "logger = make(rank)\nlogger = Logger()" + IN_TEST,
    "another one": "logger = make(rank) or Logger()" + IN_TEST,
    "filled in": "logger = make(rank)\nif logger is None:\n    logger = Logger()" + IN_TEST,
    "another class": "logger = Logger() if rank == 0 else Report()" + IN_TEST,
    "sent": (
        "parts = [torch.load('x.pt') if rank == 0 else None]\n"
        "dist.broadcast_object_list(parts, src=0)\nlogger = parts[0]" + IN_TEST
    ),
}


@pytest.mark.parametrize("body", ONE_RANK.values(), ids=ONE_RANK.keys())
def test_a_test_for_what_one_rank_has_tests_the_rank(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, body, header=HEAD)
    assert Ranks.ONE in {event.ranks for event in events(found, Collective)}
    assert any(unmatched_collectives(trace) for trace in found.traces)


@pytest.mark.parametrize("body", NOT_THERE.values(), ids=NOT_THERE.keys())
def test_what_all_ranks_have_after_all(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, body, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)


def test_the_object_is_read_where_no_test_is(tmp_path: Path) -> None:
    body = """\
        class Sum:
            def reduce(self, loss):
                dist.barrier()

        one = Sum() if rank == 0 else None
        one.reduce(loss)
        """
    found = program(tmp_path, body, header=HEAD)
    assert "barrier" in [event.api for event in events(found, Collective)]


CALLBACKS = """\
class Progress:
    def step(self, loss):
        print(loss)


class Reduce:
    def step(self, loss):
        dist.barrier()


class Trainer:
    def __init__(self, callbacks):
        self.callbacks = [*callbacks]

    def end(self, loss):
        for callback in self.callbacks:
            callback.step(loss)


"""
IN_LOOP = "\nTrainer(callbacks).end(loss)\n"
IN_LISTS = {
    "added": "callbacks = [Progress()]\nif rank == 0:\n    callbacks.append(Reduce())" + IN_LOOP,
    "added behind a test": (
        "def add(callbacks):\n    if rank != 0:\n        return\n    callbacks.append(Reduce())\n\n"
        "callbacks = []\nadd(callbacks)" + IN_LOOP
    ),
    "one of two lists": "callbacks = [Reduce()] if rank == 0 else []" + IN_LOOP,
    "functions": (
        "callbacks = []\nif rank == 0:\n    callbacks.append(dist.barrier)\n"
        "    callbacks.append(lambda: dist.barrier())\n"
        "for callback in callbacks:\n    callback()\n"
    ),
    "a test of the list": (
        "callbacks = []\nif rank == 0:\n    callbacks.append(Progress())\n"
        "if callbacks:\n    dist.barrier()\n"
    ),
}
IN_LISTS_OF_ALL = {
    "added on all ranks": "callbacks = []\ncallbacks.append(Reduce())" + IN_LOOP,
    "nothing to wait for": (
        "callbacks = [Reduce()]\nif rank == 0:\n    callbacks.append(Progress())" + IN_LOOP
    ),
    "a list on each side": (
        "if rank == 0:\n    callbacks = []\n    callbacks.append(Reduce())\n"
        "else:\n    callbacks = []\n    callbacks.append(Reduce())" + IN_LOOP
    ),
    "filled up": (
        "callbacks = [Progress()] if rank == 0 else []\ncallbacks.append(Progress())\n"
        "if callbacks:\n    dist.barrier()\n"
    ),
    "of some tests": ("callbacks = []\nif loss > 1:\n    callbacks.append(Reduce())" + IN_LOOP),
}


@pytest.mark.parametrize("body", IN_LISTS.values(), ids=IN_LISTS.keys())
def test_an_element_that_one_rank_has_takes_its_turn_there(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, CALLBACKS + body, header=HEAD)
    assert any(unmatched_collectives(trace) for trace in found.traces)


@pytest.mark.parametrize("body", IN_LISTS_OF_ALL.values(), ids=IN_LISTS_OF_ALL.keys())
def test_elements_that_all_ranks_have(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, CALLBACKS + body, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)


SIDES = """\
class Quiet:
    def step(self, loss):
        pass


class Reduce:
    def step(self, loss):
        dist.all_reduce(loss)


class Doubled:
    def step(self, loss):
        dist.all_reduce(loss)
        loss.mul_(2)


def quiet(loss):
    pass


def reduce(loss):
    dist.all_reduce(loss)


"""
ONE_SIDE = {
    "objects": "one = Reduce() if rank == 0 else Quiet()\none.step(loss)\n",
    "objects by a statement": (
        "if rank == 0:\n    one = Quiet()\nelse:\n    one = Reduce()\none.step(loss)\n"
    ),
    "functions": "step = quiet if rank == 0 else reduce\nstep(loss)\n",
    "lambda": "step = reduce if rank == 0 else (lambda loss: None)\nstep(loss)\n",
    "method kept": "step = (Reduce() if rank == 0 else Quiet()).step\nstep(loss)\n",
    "as argument": (
        "def run(step):\n    step(loss)\n\nrun(Reduce().step if rank == 0 else Quiet().step)\n"
    ),
}
BOTH_SIDES = {
    "objects": "one = Reduce() if rank == 0 else Doubled()\none.step(loss)\n",
    "functions": "step = reduce if rank == 0 else Doubled().step\nstep(loss)\n",
    "one class": "one = Reduce() if rank == 0 else Reduce()\none.step(loss)\n",
    "neither": "one = Quiet() if rank == 0 else quiet\nquiet(loss)\n",
    "presence": (
        "one = Reduce() if rank == 0 else Quiet()\nif one is not None:\n    reduce(loss)\n"
    ),
    "truth": "one = Reduce() if rank == 0 else Quiet()\nif one:\n    reduce(loss)\n",
}


@pytest.mark.parametrize("body", ONE_SIDE.values(), ids=ONE_SIDE.keys())
def test_one_of_two_sides_runs_a_collective(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, SIDES + body, header=HEAD)
    assert any(unmatched_collectives(trace) for trace in found.traces)


@pytest.mark.parametrize("body", BOTH_SIDES.values(), ids=BOTH_SIDES.keys())
def test_both_sides_run_it(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, SIDES + body, header=HEAD)
    assert not any(unmatched_collectives(trace) for trace in found.traces)


AT_TIMES = """\
class Presence:
    pass


def due(step):
    if step % 4 == 3:
        return Presence()
    return None


loader = torch.utils.data.DataLoader(torch.zeros(8, 2))
for step, batch in enumerate(loader):
    {making}
    if present is not None:
        dist.barrier()
"""
MAKING = {
    "expression": "present = Presence() if step % 4 == 3 else None",
    "function": "present = due(step)",
    "negated": "present = None if step % 4 != 3 else Presence()",
}


@pytest.mark.parametrize("making", MAKING.values(), ids=MAKING.keys())
def test_what_there_is_at_times_says_when(tmp_path: Path, making: str) -> None:
    found = program(tmp_path, AT_TIMES.format(making=making), header=HEAD)
    guards = [e.guards[-1] for e in events(found, Collective) if e.api == "barrier"]
    assert guards
    assert all(guard.kind is GuardKind.VARYING and guard.predicate for guard in guards)


def test_what_data_choose_is_there_on_the_ranks_that_they_choose(tmp_path: Path) -> None:
    body = """\
        class Presence:
            pass

        rows = torch.utils.data.TensorDataset(torch.zeros(8, 2))
        sampler = torch.utils.data.DistributedSampler(rows)
        for (batch,) in torch.utils.data.DataLoader(rows, sampler=sampler):
            present = Presence() if batch.sum() > 0 else None
            if present is not None:
                dist.barrier()
        """
    found = program(tmp_path, textwrap.dedent(body), header=HEAD)
    guards = [e.guards[-1] for e in events(found, Collective) if e.api == "barrier"]
    assert guards and all(guard.own_data is not None for guard in guards)


def test_the_test_of_a_setting_stays_with_the_object(tmp_path: Path) -> None:
    body = """\
        import sys

        present = Logger() if len(sys.argv) > 1 else None
        if present is not None:
            dist.barrier()
        """
    found = program(tmp_path, textwrap.dedent(body), header=HEAD)
    guards = [e.guards[-1] for e in events(found, Collective) if e.api == "barrier"]
    assert guards and all(guard.kind is GuardKind.CONFIG for guard in guards)
