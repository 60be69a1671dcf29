"""Installs the simulation, and runs a program as one simulated rank."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses.fake_tensor import FakeTensorMode

from fsdplint.runtime.recorder import patching
from fsdplint.runtime.simulation import conversion, data, ranks, values
from fsdplint.runtime.simulation.accounting import Accounting
from fsdplint.runtime.simulation.measure import Measure
from fsdplint.runtime.simulation.switch import SIMULATION
from fsdplint.runtime.simulation.values import Scalars


def install() -> None:
    """Replace functions of torch, once a process, before the program imports anything."""
    for area in (ranks, data, values, conversion):
        area.install()
    patching.apply_replacements()


@contextlib.contextmanager
def simulate_rank(rank: int, world: int) -> Iterator[None]:
    """Run the block as one rank of `world` ranks, without values; requires `install`."""
    SIMULATION.rank, SIMULATION.world = rank, world
    with FakeTensorMode(allow_non_fake_inputs=True), Scalars():
        yield


@contextlib.contextmanager
def account_steps(limit: int | None) -> Iterator[None]:
    """Record what this rank holds and sends in each step of the block.

    limit: the number of steps after which the program ends.
    """
    with Accounting() as accounting:
        Measure(accounting, limit).install()
        yield
