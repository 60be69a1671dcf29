"""Python's ways to reach a method or value: delegation, fields, patterns, stacks of contexts."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import Called, OptimizerStepped, Sharded

TRAINS = """\
def train():
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()


"""

WAYS = {
    "getattr of an object": """
        class Inner:
            def run(self):
                train()


        class Wrapper:
            def __init__(self, inner):
                self.inner = inner

            def __getattr__(self, name):
                return getattr(self.inner, name)


        Wrapper(Wrapper(Inner())).run()
        """,
    "partialmethod": """
        import functools


        class Runs:
            def _run(self, mode, *, twice=False):
                if mode == "train":
                    train()

            run = functools.partialmethod(_run, "train")


        Runs().run(twice=True)
        """,
    "partialmethod of a class method": """
        import functools


        class Runs:
            @classmethod
            def _run(cls, mode):
                if mode == "train":
                    train()

            run = functools.partialmethod(_run, "train")


        Runs().run()
        """,
    "callback": """
        import contextlib

        with contextlib.ExitStack() as stack:
            stack.callback(train)
        """,
    "callback with arguments": """
        import contextlib


        def call(function, *, times):
            function()


        with contextlib.ExitStack() as stack:
            stack.callback(call, train, times=1)
        """,
    "closed stack": """
        import contextlib

        stack = contextlib.ExitStack()
        stack.callback(train)
        stack.close()
        """,
    "class pattern": """
        import dataclasses


        @dataclasses.dataclass
        class Job:
            name: str
            function: object


        match Job("train", train):
            case Job("other", run):
                pass
            case Job(name="train", function=run):
                run()
        """,
    "class pattern by position": """
        import typing


        class Job(typing.NamedTuple):
            name: str
            function: object


        match Job("train", train):
            case Job("train", run):
                run()
        """,
    "sequence and mapping patterns": """
        match ("train", {"function": train}):
            case ["other", _]:
                pass
            case ["train", {"function": run}]:
                run()
        """,
    "default factory": """
        import dataclasses


        @dataclasses.dataclass
        class State:
            functions: dict = dataclasses.field(default_factory=lambda: {"train": train()})


        State()
        """,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_function_is_called_this_way(tmp_path: Path, way: str) -> None:
    found = program(tmp_path, TRAINS + textwrap.dedent(way))
    assert len(findings(found, "FSDP103")) == 1
    assert list(events(found, Called)) and list(events(found, OptimizerStepped))


def test_each_object_gets_what_its_factory_makes(tmp_path: Path) -> None:
    code = """\
        import dataclasses


        @dataclasses.dataclass
        class State:
            model: nn.Module = dataclasses.field(default_factory=lambda: nn.Linear(8, 8))


        one, two = State(), State()
        fully_shard(one.model)
        fully_shard(two.model)
        """
    found = program(tmp_path, code)
    assert len({one.module for one in events(found, Sharded)}) == 2


def test_a_callback_runs_at_the_end_and_not_before(tmp_path: Path) -> None:
    code = """\
        import contextlib
        model = nn.Linear(8, 8)
        with contextlib.ExitStack() as stack:
            stack.callback(fully_shard, model)
            model(torch.ones(2, 8))
        """
    found = program(tmp_path, code)
    kinds = [type(one) for one in found.traces[0] if isinstance(one, Called | Sharded)]
    assert kinds == [Called, Sharded]


def test_a_stack_calls_the_last_callback_first(tmp_path: Path) -> None:
    code = """\
        import contextlib
        model, other = nn.Linear(8, 8), nn.Linear(4, 4)
        with contextlib.ExitStack() as stack:
            stack.callback(fully_shard, model)
            stack.callback(fully_shard, other)
        """
    found = program(tmp_path, code)
    modules = [one.module for one in events(found, Sharded)]
    assert modules == ["module2", "module1"]


def test_a_file_gives_names_by_a_function(tmp_path: Path) -> None:
    inner = "import torch.nn as nn\n\n\ndef make():\n    return nn.Linear(8, 8)\n"
    given = "def __getattr__(name):\n    from . import inner\n\n    return getattr(inner, name)\n"
    code = "from lazy import make\nimport lazy\nfully_shard(make())\nfully_shard(lazy.make())\n"
    (tmp_path / "lazy").mkdir()
    (tmp_path / "lazy" / "__init__.py").write_text(given)
    found = program(tmp_path, code, lazy__inner=inner)
    assert len(list(events(found, Sharded))) == 2


def test_a_missing_attribute_in_getattr_ends(tmp_path: Path) -> None:
    code = """\
        class Wrapper:
            def __getattr__(self, name):
                return getattr(self.inner, name)


        Wrapper().run()
        fully_shard(nn.Linear(8, 8))
        """
    assert len(list(events(program(tmp_path, code), Sharded))) == 1


def test_a_suppressed_error_is_no_other_context(tmp_path: Path) -> None:
    code = """\
        import contextlib


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8)

            def forward(self, x):
                return self.layer(x)

            def encode(self, x):
                return self.layer(x)


        dist.init_process_group("gloo")
        model = fully_shard(Model())
        with contextlib.suppress(KeyboardInterrupt):
            model.encode(torch.ones(2, 8))
        """
    assert len(findings(program(tmp_path, code), "FSDP102")) == 1


def test_a_typed_dict_is_a_dict(tmp_path: Path) -> None:
    code = """\
        import typing


        class Options(typing.TypedDict, total=False):
            reshard_after_forward: bool
            mesh: object


        options = Options(reshard_after_forward=False)
        options["mesh"] = dist.init_device_mesh("cpu", (2,))
        fully_shard(nn.Linear(8, 8), **options)
        """
    (sharded,) = events(program(tmp_path, code), Sharded)
    assert sharded.options["reshard_after_forward"] is False and "**" not in sharded.options
