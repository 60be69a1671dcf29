"""Every file is gone through in bounded work, counted in steps, and it is said where that ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from programs import events, program

from fsdplint.cli.main import main
from fsdplint.interpreter import entry_runs, exploration, functions, load, run, unreached_functions
from fsdplint.interpreter.cuts import Cut
from fsdplint.interpreter.program import Program
from fsdplint.migration.planner import plans_of
from fsdplint.registry.meta_rules import CutShort
from fsdplint.source.nesting import deep_stack
from fsdplint.source.source import NodeSite, Source
from fsdplint.trace import Sharded, StateLoaded, Wrapped

HEAD = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard

model = torch.nn.Linear(8, 8)
"""


def lines(text: str, count: int) -> str:
    """A text count times, with the numbers of the copies in it."""
    return "".join(text.replace("#", str(number)) for number in range(count))


def nested(header: str, count: int, last: str) -> str:
    heads = "".join(
        " " * number + header.replace("#", str(number)) + "\n" for number in range(count)
    )
    return heads + " " * count + last + "\n"


LARGE = {
    "many functions": lines("def f#(model):\n    return FSDP(model)\n", 600),
    "functions that call each other twice": lines(
        "def f#(model):\n    g(model)\n    g(model)\n    return FSDP(model)\ng = f#\n", 100
    ),
    "calls that double": "".join(f"def h{n}(m):\n    h{n + 1}(m)\n    return h{n + 1}(m)\n" for n in range(50))
    + "h0(model)\n",
    "the same condition": lines("if fsdp:\n    model = FSDP(model)\n", 700),
    "as many conditions": lines("if fsdp#:\n    model = FSDP(model)\n", 300),
    "deep conditions": nested("if fsdp#:", 80, "model = FSDP(model)"),
    "deep loops": nested("for i# in range(64):", 18, "fully_shard(model)"),
    "a list that doubles": "x = [model]\n" + "x = x + x\n" * 60 + "for m in x:\n    FSDP(m)\n",
    "a string that doubles": "x = 'ab'\n" + "x = x + x\n" * 60 + "FSDP(model, x)\n",
    "an f-string that doubles": "x = 'ab'\n" + "x = f'{x}{x}'\n" * 60 + "FSDP(model, x)\n",
    "a dict that doubles": "x = {'a': model}\n" + "x = {'a': x, 'b': x}\n" * 60 + "FSDP(x['a'])\n",
    "numbers that double": "x = 3\n" + "x = x * x\n" * 80 + "FSDP(model, x)\n",
    "a list that contains itself": (
        "x = [1]\nx.append(x)\ny = x if os.environ.get('DEEP') else None\nFSDP(model)\n"
    ),
    "a list that is added to itself": "x = [model]\n" + "x += x\n" * 60 + "FSDP(x[0])\n",
    "large numbers": "u = " + "9" * 4400 + "\nx = 10 ** 10 ** 10\ny = 1 << 10 ** 12\nz = 'a' * 10 ** 12\n"
    "w = [0] * 10 ** 12\nFSDP(model, x)\n",
    "a large display": "x = [" + "'k', " * 3000 + "]\nFSDP(model)\n",
    "a long chain": "x = model" + ".f()" * 300 + "\nFSDP(model)\n",
    "loops in comprehensions": "x = [FSDP(model) for a in 'x' * 64 for b in 'x' * 64 for c in 'x' * 64]\n",
    "modules that double": "".join(
        f"class B{n}(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.a = B{n + 1}()\n        self.b = B{n + 1}()\n"
        for n in range(30)
    )
    + "class B30(torch.nn.Module):\n    pass\nfor m in B0().modules():\n    FSDP(m)\n",
    "a function that calls itself": "def f(m):\n    return f(f(f(f(m))))\nFSDP(f(model))\n",
    "tests of the rank": lines("if dist.get_rank() == #:\n    model.state_dict()\n", 700),
    "returns": "def f(m):\n" + lines("    if c#:\n        return FSDP(m)\n", 300) + "f(model)\n",
}  # fmt: skip


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth and less of the bounds, so that they are met soon."""
    monkeypatch.setattr(run, "MAX_STEPS", 4_000)
    monkeypatch.setattr(run, "MAX_EVENTS", 100)
    monkeypatch.setattr(functions, "MAX_RECURSION_STEPS", 1_000)
    monkeypatch.setattr(run, "MAX_MODULES", 300)
    monkeypatch.setattr(exploration, "MAX_PROGRAM_STEPS", 12_000)
    monkeypatch.setattr(exploration, "MAX_FUNCTION_STEPS", 4_000)
    monkeypatch.setattr(exploration, "MAX_PROGRAMS_STEPS", 20_000)
    monkeypatch.setattr(unreached_functions, "MAX_OTHERS_STEPS", 20_000)
    monkeypatch.setattr(unreached_functions, "MAX_UNREACHED_STEPS", 4_000)
    monkeypatch.setattr(entry_runs, "MAX_PROGRAM_EVENTS", 1_000)


def explored(path: Path) -> tuple[Program, int]:
    """A program, and the steps that were taken."""
    work = exploration.ProgramLoader([path])
    return deep_stack(work.run), work.steps


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.usefixtures("small_bounds")
def test_steps_and_events_are_bounded(tmp_path: Path, name: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + LARGE[name])
    program, steps = explored(path)
    # What is left of a bound when the last run begins may be overdrawn by that run, and once more
    # by the one on a single rank.
    assert steps <= 20_000 + 4_000 + 3 * 4_001
    assert all(len(trace.events) <= 100 for trace in program.traces)
    assert sum(len(trace.events) for trace in program.traces) <= 1_000 + 100 + 20_000 // 10
    assert all(len(trace.modules) <= 300 + 260 for trace in program.traces)
    assert program.problems == []


@pytest.mark.usefixtures("small_bounds")
def test_each_function_gets_one_run_before_any_gets_more(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    tests = lines("    if options.a#:\n        print(#)\n", 8)
    path.write_text(HEAD + lines(f"def f#(options, m):\n{tests}    fully_shard(m)\n", 30))
    program, _ = explored(path)
    wrapping = {event.site.node for trace in program.traces for event in trace.of(Sharded)}
    assert len(wrapping) == 30


def test_what_is_small_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + "if fsdp:\n    model = FSDP(model)\n" * 20)
    program, _ = explored(path)
    assert not program.cut_short and program.cuts == {}


def test_a_program_that_has_nothing_new_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").touch()
    tests = "".join(f"    if options.a{n}:\n        model = FSDP(model)\n" for n in range(4))
    (tmp_path / "setup.py").write_text(
        HEAD + f"def run(options):\n    model = torch.nn.Linear(8, 8)\n{tests}"
    )
    start = "import argparse\nimport setup\nsetup.run(argparse.ArgumentParser().parse_args())\n"
    paths = [tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"]
    paths[0].write_text(HEAD + start)
    paths[1].write_text(HEAD + start)
    more = "if argparse.ArgumentParser().parse_args().more:\n    FSDP(model)\n"
    paths[2].write_text(HEAD + start + more)
    load = exploration.ProgramLoader(paths)
    once = exploration.ProgramLoader.advance

    def advance(self: exploration.ProgramLoader, runs: Any, steps: int) -> None:
        once(self, runs, steps)
        if steps:
            monkeypatch.setattr(exploration, "MAX_PROGRAMS_STEPS", 0)  # the others are run once

    monkeypatch.setattr(exploration.ProgramLoader, "advance", advance)
    program = deep_stack(load.run)
    assert [Path(path).name for path in program.cuts] == ["c.py"]


def test_programs_share_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    start = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    tests = "".join(f"    if args.a == {n}:\n        fully_shard(model)\n" for n in range(40))
    work = "    for _ in range(9):\n" + "        model(torch.ones(8))\n" * 20
    few = "    if args.few:\n        model.load_state_dict(torch.load('m.pt'))\n"
    main = 'if __name__ == "__main__":\n    model = torch.nn.Linear(8, 8)\n'
    (tmp_path / "a.py").write_text(HEAD + start + main + tests + work)
    (tmp_path / "b.py").write_text(HEAD + start + main + "    fully_shard(model)\n" + few)
    monkeypatch.setattr(exploration, "MAX_PROGRAMS_STEPS", 6_000)
    monkeypatch.setattr(exploration, "MIN_SHARE", 0)
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    program = deep_stack(exploration.ProgramLoader(paths).run)
    assert [Path(path).name for path in program.cuts] == ["a.py"]
    assert any(True for trace in program.traces for _ in trace.of(StateLoaded))


def checked(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["check", *arguments])
    return done.exit_code, done.output


CLEAN = HEAD + "fully_shard(model)\n" + "model(torch.ones(8)).sum().backward()\n" * 60


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bounds: None) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "train.py"
    path.write_text(CLEAN)
    return path


COVERED = "The check covered 50 of 61 calls of the FSDP API. See --coverage."


def test_it_is_said_where_a_program_was_left(train: Path) -> None:
    code, output = checked("--output-format", "concise", "train.py")
    assert output.splitlines() == [
        "train.py:55:1: FSDP904 the program is too large: it was followed up to here only (more "
        "than 100 events)",
        "Found 1 note.",
        COVERED,
    ]
    assert code == 0  # nothing is wrong


def test_a_finding_still_counts(train: Path) -> None:
    train.write_text(CLEAN.replace("model(torch.ones", "model.forward(torch.ones", 1))
    code, output = checked("--output-format", "concise", "train.py")
    assert code == 1 and "FSDP101" in output and "FSDP904" in output


def test_every_format_has_it_and_it_can_be_turned_off(train: Path) -> None:
    found = json.loads(checked("--output-format", "json", "train.py")[1])
    assert "FSDP904" in json.dumps(found)
    sarif = json.loads(checked("--output-format", "sarif", "train.py")[1])
    (result,) = sarif["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("FSDP904", "note")
    passed = (0, f"All checks passed.\n{COVERED}\n")
    assert checked("--ignore", "FSDP904", "train.py") == passed
    train.write_text("# fsdplint: file-ignore[FSDP904]\n" + CLEAN)
    assert checked("train.py") == passed


def test_it_is_said_where_in_another_file(train: Path, tmp_path: Path) -> None:
    steps = "def many(model):\n" + "    model(1)\n" * 60
    (tmp_path / "steps.py").write_text(steps)
    text = HEAD + "from steps import many\nfully_shard(model)\nmany(model)\nmany(model)\n"
    train.write_text(text)
    code, output = checked("--output-format", "concise", "train.py")
    (line,) = [one for one in output.splitlines() if "FSDP904" in one]
    assert line.startswith("train.py:9:1: ") and code == 0
    (cut,) = load([train]).cuts.values()
    assert cut.inner is not None and cut.inner.path.endswith("steps.py")


def test_it_is_said_where_in_what_another_file_calls_back(train: Path, tmp_path: Path) -> None:
    (tmp_path / "back.py").write_text("def back(f):\n    value = f(1)\n    return value\n")
    many = "lambda m: [" + "model(1), " * 300 + "]"
    train.write_text(HEAD + f"from back import back\nfully_shard(model)\nback({many})\n")
    output = checked("--output-format", "full", "train.py")[1]
    assert "FSDP904" in output and "Error" not in output


def test_configurations_that_were_not_tried(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsdplint.interpreter.search.MAX_RUNS", 2)
    nested = "if a:\n    if b:\n        model = FSDP(model)\n    else:\n        print(model)\n"
    train.write_text(HEAD + nested + "model(1)\n")
    output = checked("--output-format", "concise", "--select", "FSDP9", "train.py")[1]
    assert output.startswith("train.py:1:1: FSDP904 the program is too large: not all conf")


def test_pairs_of_configurations_that_were_not_tried(
    train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.interpreter.search.MAX_RUNS", 2)
    settings = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    shard = "if args.fsdp:\n    fully_shard(model)\n"
    load = "if args.resume:\n    model.load_state_dict(torch.load('model.pt'))\n"
    train.write_text(HEAD + settings + shard + load + "model(torch.ones(8))\n")
    output = checked("--output-format", "concise", "--select", "FSDP9", "train.py")[1]
    assert "FSDP904" not in output


def test_functions_that_were_not_looked_at(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train.write_text(HEAD + "fully_shard(model)\n" * 10 + LARGE["many functions"])
    monkeypatch.setattr(unreached_functions, "MAX_UNREACHED_STEPS", 100)
    output = checked("--output-format", "concise", "--select", "FSDP9", "train.py")[1]
    assert "`f1` and others were not looked at on their own" in output


def test_a_migration_is_of_so_many_uses_at_most(
    train: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.migration.planner.MAX_USES", 5)
    train.write_text(HEAD + "model = FSDP(model)\n" * 10)
    before = train.read_bytes()
    code, output = checked("--fix", "train.py")
    assert "more than 5 uses of FSDP1 belong together" in output and code == 1
    assert train.read_bytes() == before


@pytest.mark.parametrize(("files", "said"), [(1, 1), (4, 4), (9, 1)])
def test_of_many_files_the_first_is_named(files: int, said: int) -> None:
    program = Program()
    for number in range(files):
        source = Source(f"part{number}.py", "x = 1\n")
        program.cuts[source.path] = Cut(NodeSite(source, source.tree.body[0]), "met its bound")
    found = CutShort.of(program)
    assert len(found) == said
    assert found[0].site.path == "part0.py"
    assert found[0].message.endswith(
        "bound" if said == files else "the same applies to 8 more files of it"
    )


def test_a_program_that_was_left_is_not_migrated(train: Path, tmp_path: Path) -> None:
    (tmp_path / "wrap.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def shard(model):\n    return FSDP(model)\n"
    )
    head = HEAD + "from wrap import shard\nmodel = shard(model)\n"
    train.write_text(head + "model(torch.ones(8)).sum().backward()\n" * 5)
    (plan,) = plans_of(load([train]))
    assert not any("too large" in blocker.reason for blocker in plan.blockers)
    train.write_text(head + "model(torch.ones(8)).sum().backward()\n" * 60)
    (plan,) = plans_of(load([train]))
    assert [blocker.reason for blocker in plan.blockers] == [
        "the program is too large: it was followed up to here only (more than 100 events), and "
        "the rest is not known"
    ]


def test_what_calls_itself_several_times_is_left_and_the_program_goes_on(train: Path) -> None:
    walk = (
        "def walk(x):\n    if isinstance(x, dict):\n"
        + "        x = {k: walk(v) for k, v in x.items()}\n" * 20
        + "    return x\n"
    )
    text = HEAD + walk + "fully_shard(model)\nwalk(load())\nmodel.forward(1)\n"
    train.write_text(text)
    code, output = checked("--output-format", "concise", "train.py")
    assert code == 1 and "FSDP101" in output and "FSDP904" not in output


def test_many_conditions_stay_bounded(tmp_path: Path) -> None:
    lines = [f"if args.f{n}:\n    state{n} = model.state_dict()" for n in range(60)]
    found = program(
        tmp_path,
        "import argparse\nargs = argparse.ArgumentParser().parse_args()\nmodel = Net()\n"
        + "\n".join(lines),
    )
    assert len(found.traces) <= 40


def test_an_endless_loop_and_deep_recursion_end(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        def again(n):
            return again(n - 1) + again(n - 2)

        model = FSDP(Net())
        while True:
            while True:
                while True:
                    again(10)
        """,
    )
    assert list(events(found, Wrapped))
