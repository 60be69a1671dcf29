"""Values that an unknown name chooses: each is tried, and what differs between them is not certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.interpreter import Program, search
from fsdplint.interpreter.configurations import BranchTaken
from fsdplint.interpreter.values import Condition
from fsdplint.trace import Called, ModuleBuilt, OptimizerBuilt, Sharded

HEAD = """\
import argparse
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)


"""
CHOICES = {
    "display": ("BODIES = dict(a=Small, b=Middle, c=Large)", "BODIES[args.name]()"),
    "classes": ("BODIES = {'a': Small, 'b': Middle, 'c': Large}", "BODIES[args.name]()"),
    "functions": (
        "def small():\n    return Small()\n"
        "def middle():\n    return Middle()\n"
        "def large():\n    return Large()\n"
        "BODIES = {'a': small, 'b': middle, 'c': large}",
        "BODIES[args.name]()",
    ),
    "lambdas": (
        "BODIES = {'a': lambda: Small(), 'b': lambda: Middle(), 'c': lambda: Large()}",
        "BODIES[args.name]()",
    ),
    "get": ("BODIES = {'a': Small, 'b': Middle}", "BODIES.get(args.name, Large)()"),
    "assigned": (
        "BODIES = {}\nBODIES['a'] = Small\nBODIES['b'] = Middle\nBODIES['c'] = Large",
        "BODIES[args.name]()",
    ),
    "instances": ("BODIES = {'a': Small(), 'b': Middle(), 'c': Large()}", "BODIES[args.name]"),
    "records": (
        "BODIES = {'a': {'cls': Small, 'kwargs': {}}, 'b': {'cls': Middle, 'kwargs': {}},\n"
        "    'c': {'cls': Large, 'kwargs': {}}}\n"
        "entry = BODIES[args.name]",
        "entry['cls'](**entry['kwargs'])",
    ),
}


def built(found: Program) -> set[str]:
    """The classes of the modules that are sharded, over all traces."""
    return {
        trace.modules[event.module].class_name
        for trace in found.traces
        for event in trace.of(Sharded)
    }


@pytest.mark.parametrize("choice", CHOICES)
def test_every_candidate_is_tried(tmp_path: Path, choice: str) -> None:
    definitions, expression = CHOICES[choice]
    found = program(
        tmp_path, f"{definitions}\nmodel = {expression}\nfully_shard(model)\n", header=HEAD
    )
    assert built(found) >= {"Small", "Middle", "Large"}
    assert not found.cuts


def test_what_one_candidate_does_stands_under_a_condition(tmp_path: Path) -> None:
    body = """
        def early(model):
            optimizer = torch.optim.Adam(model.parameters())
            fully_shard(model)
            return optimizer

        def late(model):
            fully_shard(model)
            return torch.optim.Adam(model.parameters())

        WAYS = {"late": late, "early": early}
        model = Small()
        way = WAYS[args.name]
        optimizer = way(model)
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
    """
    (finding,) = findings(program(tmp_path, body, header=HEAD), "FSDP103")
    assert [guard.text for guard in finding.configuration] == ["args.name == 'early'"]


def test_a_choice_agrees_with_a_test_of_its_name(tmp_path: Path) -> None:
    body = """
        BODIES = {"small": Small, "large": Large}
        model = BODIES[args.name]()
        if args.name == "small":
            fully_shard(model)
    """
    found = program(tmp_path, body, header=HEAD)
    assert built(found) == {"Small"}


def test_a_registry_may_have_other_entries(tmp_path: Path) -> None:
    """What fills a dict may be out of sight, so its only entry is not the only choice."""
    body = """
        BODIES = {}
        BODIES["small"] = Small
        model = BODIES[args.name]()
        fully_shard(model)
    """
    found = program(tmp_path, body, header=HEAD)
    assert len(found.traces) == 2
    assert "Small" in built(found) and built(found) != {"Small"}


def test_imported_files_fill_a_registry(tmp_path: Path) -> None:
    files = {
        "zoo__registry": """\
            BODIES = {}
            def register(name):
                def add(cls):
                    BODIES[name] = cls
                    return cls
                return add
            """,
        "zoo__small": """\
            from torch import nn
            from .registry import register
            @register("small")
            class One(nn.Module):
                pass
            """,
        "zoo__large": """\
            from torch import nn
            from .registry import register
            @register("large")
            class Large(nn.Module):
                pass
            """,
    }
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "__init__.py").write_text(
        "from .registry import BODIES\nfrom . import small\nfrom .large import Large\n"
    )
    body = """
        from zoo import BODIES
        model = BODIES[args.name]()
        fully_shard(model)
    """
    assert built(program(tmp_path, body, header=HEAD, **files)) >= {"One", "Large"}


def test_a_choice_that_nothing_depends_on_stays_unknown(tmp_path: Path) -> None:
    body = """
        class Reader:
            path = "one"

        class Writer:
            path = "two"

        KINDS = {"reader": Reader, "writer": Writer}
        kind = KINDS[args.name]()
        model = Small()
        if kind.path == "one":
            fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters())
    """
    found = program(tmp_path, body, header=HEAD)
    assert any(not list(trace.of(Sharded)) for trace in found.traces)
    assert any(list(trace.of(Sharded)) for trace in found.traces)


def test_of_too_many_candidates_one_run_knows_none(tmp_path: Path) -> None:
    functions = "".join(
        f"def small_{one}():\n    print('{one}')\n    return Small()\n" for one in range(40)
    )
    entries = ", ".join(f"'{number}': small_{number}" for number in range(40))
    body = f"{functions}BODIES = {{{entries}}}\nmodel = BODIES[args.name]()\nfully_shard(model)\n"
    found = program(tmp_path, body, header=HEAD)
    names = [
        {trace.modules[event.module].class_name for event in trace.of(ModuleBuilt)}
        for trace in found.traces
    ]
    assert any("Small" in one for one in names)
    assert any("Small" not in one for one in names)


@pytest.mark.parametrize(
    ("code", "matters"),
    [
        ("class {name}(nn.Module):\n    layer = nn.Linear(4, 4)\n", False),
        ("class {name}(nn.Module):\n    layer = nn.BatchNorm1d(4)\n", True),
        ("def {name}():\n    return save_of(Small(), '{name}')\n", True),
        ("class {name}:\n    net = Small()\n    net.load_state_dict(state['state_dict'])\n", False),
    ],
    ids=["models", "batch norms", "a state", "other models"],
)
def test_a_search_that_ends_before_all_candidates_says_so(
    code: str, matters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration may depend on what some of the candidates do."""
    monkeypatch.setattr(search, "MAX_RUNS", 2)
    names = ["One", "Two", "Three", "Four"]
    body = "def save_of(model, name):\n    return name, model.state_dict()\n"
    body += "".join(code.format(name=name) for name in names)
    body += f"KINDS = {{{', '.join(f'{name!r}: {name}' for name in names)}}}\n"
    body += "made = KINDS[args.name]()\nfully_shard(Small())\n"
    found = program(tmp_path, body, header=HEAD)
    assert [cut.untried for cut in found.cuts.values()] == [matters]


def test_a_branch_that_no_run_took_is_no_choice() -> None:
    """Nothing need depend on the condition of its test."""
    tried = search.Search()
    runs = tried.runs()
    decisions = next(runs)
    decisions.decide(Condition("args.a", "args.a", subject="args.a", relation="truth"))
    decisions.note_branch("test", BranchTaken(True, ("args.a",), frozenset([False])))
    next(runs)
    assert not tried.leaves_choices()


def test_a_name_that_varies_chooses_nothing(tmp_path: Path) -> None:
    body = """
        BODIES = {"small": Small, "large": Large}
        for name in args.names:
            fully_shard(BODIES[name]())
    """
    assert not built(program(tmp_path, body, header=HEAD)) & {"Small", "Large"}


def test_the_default_of_get_is_a_candidate(tmp_path: Path) -> None:
    body = """
        def adam(model):
            return torch.optim.Adam(model.parameters())

        def nothing(model):
            return None

        model = Small()
        optimizer = {"adam": adam}.get(args.name, nothing)(model)
        fully_shard(model)
    """
    found = program(tmp_path, body, header=HEAD)
    assert sorted(len(list(trace.of(OptimizerBuilt))) for trace in found.traces) == [0, 1]
    assert list(events(found, ModuleBuilt))


def test_of_many_candidates_those_that_name_the_contract_are_tried(tmp_path: Path) -> None:
    classes = "".join(
        f"""
class Trainer{number}:
    def train(self, model):
        {"fully_shard(model)" if number == 15 else "pass"}
"""
        for number in range(20)
    )
    found = program(
        tmp_path,
        "import trainers\ngetattr(trainers, args.name)().train(Small())\n",
        header=HEAD,
        trainers="from torch.distributed.fsdp import fully_shard\n" + classes,
    )
    sharded = [bool(list(trace.of(Sharded))) for trace in found.traces]
    assert any(sharded) and not all(sharded)


STRATEGIES = """\
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

name = "full"
exec(open("overrides.py").read())
STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "no": ShardingStrategy.NO_SHARD}
dist.init_process_group("gloo")
model = FSDP(nn.Linear(8, 8), use_orig_params=True, sharding_strategy=CHOICE)
model(torch.ones(2, 8)).sum().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
"""


@pytest.mark.parametrize(
    ("choice", "condition"),
    [
        ("STRATEGIES.get(name, ShardingStrategy.FULL_SHARD)", ("name == 'no'", False)),
        ("STRATEGIES[name]", ("name == 'full'", True)),
    ],
)
def test_a_strategy_is_a_configuration(
    tmp_path: Path, choice: str, condition: tuple[str, bool]
) -> None:
    """A clipping that is only wrong where FSDP1 shards is found where it does."""
    found = findings(program(tmp_path, STRATEGIES.replace("CHOICE", choice)), "FSDP404")
    assert [[(g.text, g.holds) for g in one.configuration] for one in found] == [[condition]]


def test_a_finding_with_every_strategy_has_no_condition(tmp_path: Path) -> None:
    found = program(tmp_path, STRATEGIES.replace("CHOICE", "STRATEGIES[name]"))
    assert [one.configuration for one in findings(found, "FSDP201")] == [()]


def test_strategies_that_all_shard(tmp_path: Path) -> None:
    text = STRATEGIES.replace("CHOICE", "STRATEGIES[name]").replace("NO_SHARD", "SHARD_GRAD_OP")
    (found,) = findings(program(tmp_path, text), "FSDP404")
    assert not found.configuration


def test_no_strategy_that_shards(tmp_path: Path) -> None:
    text = STRATEGIES.replace("CHOICE", "STRATEGIES[name]").replace("FULL_SHARD", "NO_SHARD")
    assert not findings(program(tmp_path, text), "FSDP404")


def test_the_only_entry_of_a_dict_of_a_function(tmp_path: Path) -> None:
    body = """\
        def train(names, model):
            sources = {}
            for name in ("text",):
                sources[name] = {"net": model, "size": 4}
            source = sources[names.pick()]
            source["net"](torch.ones(1))

        train(unknown(), fully_shard(Net()))
        """
    for trace in program(tmp_path, body).traces:
        assert any(one.inside is None for one in trace.of(Called))
