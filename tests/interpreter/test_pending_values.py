"""Values whose effect comes later: handles of collectives, and contexts that are entered by a call."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Called, Collective, Gathered, GradMode

HEAD = """\
import contextlib
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
fully_shard(model)
"""


def modes(folder: Path, body: str) -> list[GradMode | None]:
    """The autograd modes of the calls of the model."""
    found = program(folder, textwrap.dedent(body), header=HEAD)
    return [event.grad for event in found.traces[0].of(Called)]


def test_an_asynchronous_unshard_gathers_when_it_is_awaited(tmp_path: Path) -> None:
    body = """\
        handle = model.unshard(async_op=True)
        dist.barrier()
        handle.wait()
        model.reshard()
        """
    trace = program(tmp_path, textwrap.dedent(body), header=HEAD).traces[0]
    kinds = [e for e in trace if isinstance(e, Collective | Gathered)]
    assert [type(e) for e in kinds] == [Collective, Collective, Gathered, Gathered]
    assert [e.collective for e in kinds] == [True, True, False, False]
    assert [e.gathered for e in kinds if isinstance(e, Gathered)] == [True, False]


def test_an_unshard_that_is_never_awaited_gathers_nothing(tmp_path: Path) -> None:
    found = program(tmp_path, "model.unshard(async_op=True)\n", header=HEAD)
    assert not list(events(found, Gathered))


@pytest.mark.parametrize("argument", ["", "async_op=False", "async_op=unknown"])
def test_other_unshards_gather_at_once(tmp_path: Path, argument: str) -> None:
    found = program(tmp_path, f"model.unshard({argument})\n", header=HEAD)
    assert [(e.gathered, e.collective) for e in events(found, Gathered)] == [(True, True)]


def test_a_stack_of_contexts(tmp_path: Path) -> None:
    body = """\
        with contextlib.ExitStack() as stack:
            model(x)
            stack.enter_context(torch.no_grad())
            model(x)
        model(x)
        """
    assert modes(tmp_path, body) == [GradMode.ON, GradMode.OFF, GradMode.ON]


def test_a_stack_that_is_closed(tmp_path: Path) -> None:
    body = """\
        stack = contextlib.ExitStack()
        stack.enter_context(torch.no_grad())
        model(x)
        stack.close()
        model(x)
        """
    assert modes(tmp_path, body) == [GradMode.OFF, GradMode.ON]


def test_a_context_that_a_call_enters(tmp_path: Path) -> None:
    body = """\
        context = torch.no_grad()
        model(x)
        context.__enter__()
        model(x)
        context.__exit__(None, None, None)
        model(x)
        """
    assert modes(tmp_path, body) == [GradMode.ON, GradMode.OFF, GradMode.ON]


def test_an_object_on_a_stack(tmp_path: Path) -> None:
    body = """\
        class Timer:
            def __enter__(self):
                dist.barrier()

            def __exit__(self, *error):
                dist.all_reduce(torch.ones(1))

        with contextlib.ExitStack() as stack:
            stack.enter_context(Timer())
            model(x)
        """
    trace = program(tmp_path, textwrap.dedent(body), header=HEAD).traces[0]
    found = [e.api if isinstance(e, Collective) else "call" for e in trace if e.collective]
    assert found == ["barrier", "call", "all_reduce"]


def test_a_stack_may_have_unknown_contexts(tmp_path: Path) -> None:
    body = """\
        with contextlib.ExitStack() as stack:
            stack.enter_context(unknown())
            model(x)
        model(x)
        """
    assert modes(tmp_path, body) == [None, GradMode.ON]
