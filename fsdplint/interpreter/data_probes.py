"""What the code of a dataset of the program does when a loader reads a sample.

The code runs for each sample, in worker processes too, so a run does not execute it. A probe
executes it once, notes what may give ranks or workers other data, and drops the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fsdplint.interpreter import lazy
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.iteration import iterable_of
from fsdplint.interpreter.rank_local import local_of, own_data
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import (
    Bound,
    Dict,
    Function,
    Instance,
    Partial,
    Sequence,
    Unknown,
    Value,
)

# What the run knows of random numbers, gradients and other ranks.
_STATE = (
    *("draws_own_numbers", "has_own_data", "has_rank_data", "open_pass", "process_seed", "seeded"),
    *("gradients_dropped_at", "gradients_made_at", "gradients_read_at", "gradients_used_at"),
    *("hooks_drop_gradients", "may_have_waited_at", "save_waited_at"),
)
_BY_INDEX = ("__getitem__", "__getitems__")


@dataclass
class Probe:
    """What happens while a sample is read.

    Attributes:
        may_differ: whether ranks may get data of their own.
        draws: whether numbers are drawn from the generator of the process, which is another one in
            each worker.
        is_out_of_sight: whether code is called that is not known.
        by_process: whether code asks for the worker, or for its process.
    """

    may_differ: bool = False
    draws: bool = False
    is_out_of_sight: bool = False
    by_process: bool = False


def probe(run: Run, dataset: Instance) -> Probe | None:
    """What reading a sample of a dataset does; None if it has no method for that.

    The first answer counts for all loaders of a run.
    """
    if dataset not in run.probes:
        run.probes[dataset] = _probe(run, dataset)
    return run.probes[dataset]


def _probe(run: Run, dataset: Instance) -> Probe | None:
    methods = [dataset.cls.lookup(name) for name in _BY_INDEX]
    found = [one for one in methods if isinstance(one, Function)]
    iterates = isinstance(dataset.cls.lookup("__iter__"), Function)
    if not found and not iterates:
        return None
    made = Probe()
    with _without_traces(run, made):
        if iterates:
            lazy.consume(run, iterable_of(run, dataset))
        for method in found:
            index = Unknown(varying=True)
            lazy.consume(run, call_function(run, method, dataset, [index], {}, run.executing))
        made.may_differ = run.has_rank_data
    return made


@dataclass(frozen=True)
class BatchFacts:
    """What a function makes of the samples of a batch.

    Attributes:
        padded: the elements that it pads, with the dimension of their length.
        optional: whether the samples choose between a batch and None, if some of them are None.
    """

    padded: dict[str, int] = field(default_factory=dict)
    optional: bool = False


def collated(run: Run, collate: Value | None) -> BatchFacts:
    """What a function makes of the samples of a batch, some of which may be None."""
    function = run.settle(collate) if collate is not None else None
    if not isinstance(function, Function | Bound | Partial) or run.probe is not None:
        return BatchFacts()
    with _without_traces(run, Probe()):
        own = own_data(run, run.site(run.executing))
        sample = Unknown(varying=True, rank_local=replace(own, optional=True))
        rows = Sequence([sample], "list", open=True)
        called = run.call(function, Call(run.executing, [rows]))
        batch = run.settle(lazy.consume(run, called))
    local = local_of(batch) if isinstance(batch, Unknown) else None
    return BatchFacts(_padded_elements(run, batch), local is not None and local.optional)


def _padded_elements(run: Run, batch: Value) -> dict[str, int]:
    elements: list[tuple[object, Value]] = []
    if isinstance(batch, Dict):
        elements = list(batch.items.items())
    elif isinstance(batch, Sequence) and not batch.open:
        elements = list(enumerate(batch.items))
    held = [(key, run.settle(value)) for key, value in elements]
    return {f"[{key!r}]": run.padded[value] for key, value in held if value in run.padded}


@contextmanager
def _without_traces(run: Run, made: Probe) -> Iterator[None]:
    """Execute code, and leave what the run knows of random numbers and events as it was."""
    outer, run.probe = run.probe, made
    known = {name: getattr(run, name) for name in _STATE}
    draws, seeds = set(run.shared_draws), set(run.own_seeds)
    end = len(run.trace.events)
    run.has_rank_data = False
    try:
        yield
    finally:
        run.trace.drop(end)
        run.probe = outer
        for name, value in known.items():
            setattr(run, name, value)
        run.shared_draws, run.own_seeds = draws, seeds


def repeats_in_workers(run: Run, dataset: Instance) -> bool:
    """Whether each worker of a loader certainly gives all samples of a stream.

    Nothing in the stream asks for the worker, and it draws no random numbers of the process.
    """
    found = probe(run, dataset)
    return found is not None and not (found.draws or found.is_out_of_sight or found.by_process)
