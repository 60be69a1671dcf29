"""Fixtures for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "migration"))
sys.path.insert(0, str(Path(__file__).parent))

from two_ranks import TwoRanks


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[TwoRanks]:
    """Runs programs on two ranks under the recorder; see `tests/two_ranks.py`."""
    ranks = TwoRanks()
    yield ranks
    ranks.close()
