"""The stack for deep code."""

from __future__ import annotations

import resource
import sys
import time

import pytest

from fsdplint.source.config_source import ConfigSource, ConfigSyntaxError
from fsdplint.source.nesting import RECURSION_LIMIT, deep_stack, too_deep


def down(levels: int) -> int:
    return 0 if levels == 0 else 1 + down(levels - 1)


def test_recursion_goes_deep_and_the_limit_comes_back() -> None:
    before = sys.getrecursionlimit()
    assert deep_stack(lambda: down(RECURSION_LIMIT - 100)) == RECURSION_LIMIT - 100
    assert sys.getrecursionlimit() == before


def test_what_is_raised_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        deep_stack(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        deep_stack(sys.exit)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\n", None),
        ("\n\nx = " + "-" * 1500 + "1\n", 3),
        ('"""' + "(" * 500 + '"""\n', None),
        ("f'{x}' '''(((''' r'\\\\' '('\n" * 400, None),
        ("x = [\n" + "(a, b),\n" * 2000 + "]\n", None),
        ("def f():\n    return a.b.c(d)[0]\n" * 1000, None),
        ("x = 1.5 + 2.25e-3\n" * 2000, None),
        (")" * 500, None),
    ],
)
def test_too_deep(text: str, line: int | None) -> None:
    assert too_deep(text) == line


@pytest.mark.parametrize("text", ["[" * 50_000, "[a, " * 50_000, '{"a": ' * 50_000])
def test_brackets_in_yaml_are_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ConfigSyntaxError, match="too deeply"):
        ConfigSource("a.yaml", "x: " + text).parse()
    assert time.process_time() - started < 5


def test_calls_at_any_depth_of_the_stack_take_the_same_memory_chunk() -> None:
    """`deep_stack` gives the frames one chunk: no call maps memory and unmaps it again."""

    def chunks(depth: int) -> int:
        if depth:
            return chunks(depth - 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(2_000):
            nested(6)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def nested(depth: int) -> None:
        if depth:
            nested(depth - 1)

    faults = deep_stack(lambda: [chunks(depth) for depth in range(0, 200, 4)])
    assert max(faults[1:]) < 1_000  # one for each call at the end of a chunk otherwise
