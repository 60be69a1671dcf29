"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "interpreter"))
sys.path.insert(0, str(Path(__file__).parent / "migration"))
sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
sys.path.insert(0, str(Path(__file__).parent / "edits"))
sys.path.insert(0, str(Path(__file__).parent / "generated"))
sys.path.insert(0, str(Path(__file__).parent))

from forked import launcher
from rank_server import do_not_ask_name_servers
from sampling import leave_out, pytest_addoption, pytest_configure  # noqa: F401 (hooks)
from two_ranks import TwoRanks

do_not_ask_name_servers()
# As `fsdplint check` does: frequent garbage collection finds nothing in trees and traces.
gc.set_threshold(100_000, 60, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample, and begin with the long tests: at the end of a run, a
    long one would keep one process busy while the others have nothing left to do.
    """
    leave_out(config, items)
    items.sort(key=lambda item: not _may_be_long(item.path))


def _may_be_long(path: Path) -> bool:
    """Whether the tests of a file may start torchrun, environments or many processes."""
    tests = Path(__file__).parent
    return path.parent in (tests, tests / "runtime")


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from walking over all tests and modules again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test finds is nothing to another; those of the cache ask for it."""
    monkeypatch.setenv("FSDPLINT_NO_CACHE", "1")


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[TwoRanks]:
    """Runs programs on two ranks under the recorder; see `tests/two_ranks.py`."""
    ranks = TwoRanks()
    yield ranks
    ranks.close()


@pytest.fixture
def forked(two_ranks: TwoRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands run programs in forked ranks, without torchrun; see `tests/forked.py`."""
    for module in ("program_pair", "run_once"):
        monkeypatch.setattr(f"fsdplint.runtime.proof.{module}.launch", launcher(two_ranks))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for programs on two ranks."""
    return (os.cpu_count() or 1) + 1
