"""Samples of tests with many cases.

    @pytest.mark.sampled(2, by=lambda case: case["rule"].code)

In a run of whole folders, two cases of each rule are tested. A test without the mark has a sample
if its folder is in `SIZES`; `@pytest.mark.whole` excepts it. All cases are tested with
`--full-matrix`, and if the tests are chosen by `-k` or by their file. The sample is the same in every
run, and a new case leaves the others in it but for the one whose place it takes: each case has a
number that only its own id determines, and the cases with the smallest numbers are taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

OPTION = "--full-matrix"
# Folders and files with costly cases, and how many cases of one test there are in its sample.
SIZES = {
    "comparison": 8,
    "generated": 4,
    "gpu": 4,
    "metamorphic": 48,
    "migration": 5,
    "mutation": 10,
    "rules": 8,
    "runtime": 1,
    "test_hostile_inputs": 3,
}
_TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "test all cases of the tests of which a run of whole folders tests a sample"
    parser.addoption(OPTION, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sampled(size, by): see `tests/sampling.py`")
    config.addinivalue_line("markers", "whole: all cases are always tested")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are not in the samples."""
    if samples(config):
        gone = left_out(items)
        config.hook.pytest_deselected(items=gone)
        left = set(items) - set(gone)
        items[:] = [one for one in items if one in left]


def samples(config: pytest.Config) -> bool:
    """Whether a run tests samples: it does unless somebody asks for certain tests."""
    folders = all(Path(config.invocation_params.dir, one).is_dir() for one in config.args)
    return folders and not config.option.keyword and not config.getoption(OPTION)


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases that are not in the sample of their test."""
    groups: dict[tuple[str, object], list[pytest.Item]] = {}
    sizes: dict[tuple[str, object], int] = {}
    for item in items:
        mark = sample_of(item)
        if mark is not None:
            key = (item.nodeid.partition("[")[0], _group(item, **mark.kwargs))
            groups.setdefault(key, []).append(item)
            sizes[key] = mark.args[0]
    return [
        one for key, group in groups.items() for one in sorted(group, key=_number)[sizes[key] :]
    ]


def sample_of(item: pytest.Item) -> pytest.Mark | None:
    """The mark that says how many cases of a test are tested; None for all."""
    if item.get_closest_marker("whole") is not None or not hasattr(item, "callspec"):
        return None
    mark = item.get_closest_marker("sampled")
    if mark is not None or not item.path.is_relative_to(_TESTS):
        return mark
    size = SIZES.get(item.path.relative_to(_TESTS).parts[0].removesuffix(".py"))
    return pytest.mark.sampled(size).mark if size is not None else None


def _group(item: pytest.Item, by: Callable[[dict[str, Any]], object] = lambda case: None) -> object:
    """What the cases of a sample have in common."""
    return by(item.callspec.params) if isinstance(item, pytest.Function) else None


def _number(item: pytest.Item) -> str:
    return hashlib.sha256(item.name.encode()).hexdigest()
