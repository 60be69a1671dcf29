"""Functions under @contextmanager on an ExitStack: they stop at their `yield`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import HEADER, events, program

from fsdplint.trace import Called, Collective, Escaped, GradMode

HEAD = f"import contextlib\n{HEADER}"


def collectives(tmp_path: Path, body: str) -> list[str]:
    """The collectives and calls of a program, in order."""
    trace = program(tmp_path, textwrap.dedent(body), header=HEAD).traces[0]
    return [e.api if isinstance(e, Collective) else "call" for e in trace if e.collective]


SECTION = """\
        @contextlib.contextmanager
        def section(value):
            dist.barrier()
            {body}

        model = fully_shard(Net())
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(section(model))
            model(torch.ones(1))
        dist.all_gather(None, None)
        """
BODIES = [
    "yield value\n            dist.all_reduce(torch.ones(1))",
    "try:\n                yield value\n            finally:\n                dist.all_reduce(torch.ones(1))",
    "if flag:\n                yield value\n            else:\n                yield None\n"
    "            dist.all_reduce(torch.ones(1))",
    "with unknown(value.width):\n                yield value\n"
    "            dist.all_reduce(torch.ones(1))",
]


@pytest.mark.parametrize("body", BODIES)
def test_the_rest_runs_when_the_stack_ends(tmp_path: Path, body: str) -> None:
    found = collectives(tmp_path, SECTION.format(body=body))
    assert found == ["barrier", "call", "all_reduce", "all_gather"]


def test_the_argument_does_not_escape(tmp_path: Path) -> None:
    found = program(tmp_path, textwrap.dedent(SECTION.format(body="yield None")), header=HEAD)
    assert not list(events(found, Escaped))


def test_the_yielded_value_is_known(tmp_path: Path) -> None:
    body = SECTION.format(body="yield value").replace("model(torch", "held(torch")
    assert collectives(tmp_path, body) == ["barrier", "call", "all_gather"]


def test_a_context_of_the_function_lasts_as_long(tmp_path: Path) -> None:
    body = SECTION.format(body="with torch.no_grad():\n                yield value")
    body = f"{textwrap.dedent(body)}model(torch.ones(1))\n"
    found = program(tmp_path, body, header=HEAD)
    grad = [e.grad for e in events(found, Called) if e.inside is None]
    assert grad == [GradMode.OFF, GradMode.ON]


def test_a_yield_in_a_loop_stops_nothing(tmp_path: Path) -> None:
    body = SECTION.format(body="for one in value.parts():\n                yield one")
    assert "call" in collectives(tmp_path, body)
