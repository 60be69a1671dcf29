"""Members that a name chooses: those that the program can call as it does, and tests of a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.values import Condition
from fsdplint.trace import Called, ProcessGroupInit, Sharded

HEAD = """\
import argparse
import torch
from torch import nn
import trainers

parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
"""
TRAINERS = """\
import torch
from torch.distributed.fsdp import fully_shard


def mean(values, weights):
    return sum(values) / sum(weights)


class Plain:
    def __init__(self, model, config, steps=10):
        self.model = model

    def train(self):
        self.optimizer = torch.optim.SGD(self.model.parameters())


class ShardedTrainer(Plain):
    def __init__(self, model, config, steps=10):
        super().__init__(model, config, steps)
        self.optimizer = torch.optim.SGD(self.model.parameters())
        fully_shard(self.model)

    def train(self):
        self.model(torch.ones(2, 8)).sum().backward()
        self.optimizer.step()
"""
CALLS = {
    "by name": "Trainer = getattr(trainers, args.name)\ntrainer = Trainer(nn.Linear(8, 8), args, steps=3)",
    "at once": "trainer = getattr(trainers, args.name)(nn.Linear(8, 8), config=args, steps=3)",
    "unpacked": "options = dict(steps=3)\nTrainer = getattr(trainers, args.name)\n"
    "trainer = Trainer(nn.Linear(8, 8), args, 3, **options)",
}


@pytest.mark.parametrize("call", CALLS)
def test_members_that_cannot_take_the_arguments_are_no_choice(tmp_path: Path, call: str) -> None:
    found = program(tmp_path, f"{CALLS[call]}\ntrainer.train()", header=HEAD, trainers=TRAINERS)
    (finding,) = findings(found, "FSDP103")
    assert [guard.text for guard in finding.configuration] == ["args.name == 'ShardedTrainer'"]


def test_a_member_that_is_called_in_two_ways_stays_unknown(tmp_path: Path) -> None:
    text = TRAINERS.replace("def mean(values, weights)", "def mean(values, weights, steps=1)")
    found = program(tmp_path, f"{CALLS['by name']}", header=HEAD, trainers=text)
    assert not any(True for _ in events(found, Sharded))


TESTS = {
    "in": "'Sharded' in args.name",
    "startswith": "args.name.startswith('Sharded')",
    "endswith": "args.name.endswith('edTrainer')",
}


@pytest.mark.parametrize("test", TESTS)
def test_a_choice_agrees_with_a_test_of_a_part_of_its_name(tmp_path: Path, test: str) -> None:
    """The group is made for the trainer that needs it, and never for the other one."""
    body = f"""
        import torch.distributed as dist

        if {TESTS[test]}:
            dist.init_process_group("gloo")
        TRAINERS = {{"Plain": trainers.Plain, "ShardedTrainer": trainers.ShardedTrainer}}
        trainer = TRAINERS[args.name](nn.Linear(8, 8), args)
        trainer.train()
    """
    found = program(tmp_path, body, header=HEAD, trainers=TRAINERS)
    for trace in found.traces:
        assert any(trace.of(ProcessGroupInit)) == any(trace.of(Sharded))


@pytest.mark.parametrize(
    ("relation", "part", "holds"),
    [("contains", "lo", True), ("startswith", "lo", False), ("endswith", "gloo", True)],
)
def test_a_known_text_decides_the_tests_of_its_parts(relation: str, part: str, holds: bool) -> None:
    equal = Condition("name == 'gloo'", "", False, "name", "==", "gloo")
    test = Condition(f"{relation} {part}", "", False, "name", relation, part)
    assert Decisions(forced=((equal, True),)).infer(test) is holds
    assert Decisions(forced=((equal, False),)).infer(test) is None
    assert Decisions(forced=((test, not holds),)).infer(equal) is False
    assert Decisions(forced=((test, holds),)).infer(equal) is None


def test_a_key_of_a_registry_is_one_of_its_keys(tmp_path: Path) -> None:
    """No run takes another name after it was found among the keys."""
    body = """
        WAYS = {"a": 1, "b": 2}
        if args.name in WAYS:
            if args.name == "c":
                fully_shard(nn.Linear(8, 8))
    """
    header = HEAD + "from torch.distributed.fsdp import fully_shard\n"
    found = program(tmp_path, body, header=header, trainers=TRAINERS)
    assert not any(True for _ in events(found, Sharded))


def test_values_of_a_generator_in_nested_loops(tmp_path: Path) -> None:
    """A loop over data has two turns, however many loops of the generator are around its `yield`."""
    body = """
        def batches(files):
            while True:
                for file in files:
                    for line in open(file):
                        for word in line.split():
                            yield len(word)

        model = nn.Linear(8, 8)
        for batch in batches(args.name.split(",")):
            model(batch)
    """
    found = program(tmp_path, body, header=HEAD, trainers=TRAINERS)
    assert max(len(list(trace.of(Called))) for trace in found.traces) == 2
