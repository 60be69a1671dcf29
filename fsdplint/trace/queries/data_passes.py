"""Queries about passes over data loaders that several rules use."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.trace import (
    BackwardRun,
    Called,
    Collective,
    DataEscaped,
    Event,
    LoaderIterated,
    LoaderLeft,
    Trace,
)

_SENDS = ("all_gather", "all_to_all", "broadcast", "scatter")


def training_passes(trace: Trace) -> Iterator[LoaderIterated]:
    """The passes over loaders in which the program runs backward, in order."""
    for begun in trace.of(LoaderIterated):
        for event in trace.events[begun.index + 1 :]:
            if isinstance(event, LoaderLeft) and event.loader == begun.loader:
                break
            if isinstance(event, BackwardRun):
                yield begun
                break


def out_of_sight(trace: Trace, data: str | None, before: Event) -> bool:
    """Whether unknown code got the sampler or loader before an event."""
    return any(event.data == data for event in trace.before(before, DataEscaped))


def is_trained(trace: Trace, call: Called) -> bool:
    """Whether a backward pass comes after a call, before the next one at its place."""
    for event in trace.events[call.index + 1 :]:
        if isinstance(event, BackwardRun):
            return True
        if isinstance(event, Called) and event.inside is None and event.site == call.site:
            return False
    return False


def noisy_evaluations(trace: Trace) -> Iterator[tuple[LoaderIterated, Called]]:
    """Passes over loaders without a backward that call a trained model in training mode alone."""
    calls = [event for event in trace.of(Called) if event.inside is None]
    evaluated = {event.module for event in calls if event.training is False}
    trained = {event.module for event in calls if event.training and is_trained(trace, event)}
    for begun in trace.of(LoaderIterated):
        inside = events_in_pass(trace, begun)
        if any(isinstance(event, BackwardRun) for event in inside):
            continue
        for event in inside:
            if isinstance(event, Called) and event.drops_without_gradients:
                if event.module in trained - evaluated:
                    yield begun, event


def events_in_pass(trace: Trace, begun: LoaderIterated) -> list[Event]:
    """The events of a pass over a loader, in order."""
    found: list[Event] = []
    for event in trace.events[begun.index + 1 :]:
        if isinstance(event, LoaderLeft) and event.loader == begun.loader:
            return found
        found.append(event)
    return found


def exchanges_batches(trace: Trace, begun: LoaderIterated) -> bool:
    """Whether ranks may give each other the data of a pass."""
    return any(
        isinstance(event, Collective)
        and not event.of_metric
        and event.api.rpartition(".")[2].startswith(_SENDS)
        for event in events_in_pass(trace, begun)
    )
