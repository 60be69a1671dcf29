"""Fixtures for all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "migration"))
sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
sys.path.insert(0, str(Path(__file__).parent / "edits"))
sys.path.insert(0, str(Path(__file__).parent / "generated"))
sys.path.insert(0, str(Path(__file__).parent))

from forked import launcher
from rank_server import do_not_ask_name_servers
from sampling import (  # noqa: F401 (hooks)
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)
from two_ranks import TwoRanks

do_not_ask_name_servers()


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
