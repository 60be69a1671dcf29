"""A run of whole folders tests a sample of the cases of some tests; see `sampling.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import sampling

TEST = """
import pytest

@pytest.mark.sampled(2, by=lambda case: case["kind"])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("kind", ["one", "other"])
def test_of_each_kind(kind, number):
    pass

@pytest.mark.whole
@pytest.mark.parametrize("number", range(3))
def test_whole(number):
    pass

@pytest.mark.parametrize("number", range(5))
def test_without_mark(number):
    pass

def test_without_cases():
    pass
"""
HOOKS = f"""
import sys

sys.path.insert(0, {str(Path(__file__).parent)!r})
from sampling import pytest_addoption, pytest_collection_modifyitems, pytest_configure
"""
pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 10),
        (["."], 10),
        (["--full-matrix"], 19),
        (["costly/test_it.py"], 19),
        (["-k", "test_of_each_kind"], 10),
    ],
)
def test_how_many_cases_are_tested(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    count: int,
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(HOOKS)
    pytester.mkdir("costly").joinpath("test_it.py").write_text(TEST)
    monkeypatch.setattr(sampling, "_TESTS", pytester.path)
    monkeypatch.setitem(sampling.SIZES, "costly", 2)
    run = pytester.runpytest_inprocess("-q", *arguments)
    assert run.parseoutcomes()["passed"] == count
