"""Values that conditions decide, in functions or at assignments: the other one is tried, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import Saved, Sharded, StateLoaded

FIND = """
def find(path):
    if os.path.exists(path):
        if os.path.isfile(path):
            return path
        elif "metadata" in os.listdir(path):
            return path
    return None
"""
HEAD = """\
import argparse
import os
import sys
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

args = argparse.ArgumentParser().parse_args()
"""
USES = {
    "else": """
found = find(sys.argv[1])
if found is None:
    print("from scratch")
else:
    model.load_state_dict(torch.load(found))
""",
    "negated": """
if not (find(sys.argv[1]) is None):
    model.load_state_dict(torch.load("a"))
""",
    "early return": """
def load(model):
    found = find(sys.argv[1])
    if found is None:
        return
    model.load_state_dict(torch.load(found))
load(model)
""",
    "a method": """
class Loader:
    def find(self, path):
        return find(path)
    def load(self, model):
        self.found = self.find(sys.argv[1])
        if self.found is None:
            return model, 0
        model.load_state_dict(torch.load(self.found))
        return model, 1
Loader().load(model)
""",
    "a flag": """
def is_resumed(path):
    if not os.path.exists(path):
        return False
    if not os.path.isfile(path):
        return False
    return True
if is_resumed(sys.argv[1]):
    model.load_state_dict(torch.load("a"))
""",
    "a flag and more": """
def is_resumed(path):
    if os.path.isfile(path):
        return True
    return False
if is_resumed(sys.argv[1]) and model is not None:
    model.load_state_dict(torch.load("a"))
""",
    "an expression": """
found = None if args.fresh else "a"
if found is not None:
    model.load_state_dict(torch.load(found))
""",
    "a name of torch": """
dtype = torch.bfloat16 if args.bf16 else (torch.float16 if args.fp16 else torch.float32)
if dtype == torch.float16:
    model.load_state_dict(torch.load("a"))
""",
    "assignments in branches": """
dtype = torch.bfloat16 if args.bf16 else (torch.float16 if args.fp16 else torch.float32)
if dtype == torch.float16:
    scaler = torch.amp.GradScaler()
else:
    scaler = None
if scaler is not None:
    model.load_state_dict(torch.load("a"))
""",
    "an object of a library": """
class State:
    def __init__(self, scaler):
        self.scaler = torch.amp.GradScaler() if args.fp16 and args.scale else None
state = State(None)
if not state.scaler:
    model.load_state_dict(torch.load("a"))
""",
    "a constant that a skipped branch replaces": """
if args.weights and args.resumed:
    raise ValueError("both")
found = None
if args.weights:
    found = "a"
if found is not None:
    model.load_state_dict(torch.load(found))
""",
    "a constant that the function around it keeps": """
found = None
def choose():
    global found
    if args.weights and args.resumed:
        raise ValueError("both")
    if args.weights:
        found = "a"
choose()
if found is not None:
    model.load_state_dict(torch.load(found))
""",
    "an attribute that a skipped branch replaces": """
class State:
    def __init__(self):
        if args.weights and args.resumed:
            raise ValueError("both")
        self.found = None
        if args.weights:
            self.found = "a"
state = State()
if state.found is not None:
    model.load_state_dict(torch.load(state.found))
""",
    "an attribute": """
class State:
    pass
state = State()
if args.fresh:
    state.path = None
elif args.path:
    state.path = "a"
else:
    state.path = None
if state.path:
    model.load_state_dict(torch.load("a"))
""",
}


@pytest.mark.parametrize("use", USES)
def test_both_results_are_tried(tmp_path: Path, use: str) -> None:
    body = f"{FIND}\nmodel = nn.Linear(8, 8)\nfully_shard(model)\n{USES[use]}\n"
    traces = [t for t in program(tmp_path, body, header=HEAD).traces if t.entry]
    loaded = [bool(list(trace.of(StateLoaded))) for trace in traces]
    assert set(loaded) == {True, False}


def test_a_result_that_no_condition_decides_is_certain(tmp_path: Path) -> None:
    body = """
        def find(path):
            print(path)
            return None

        model = nn.Linear(8, 8)
        fully_shard(model)
        if find(sys.argv[1]) is not None:
            model.load_state_dict(torch.load("a"))
    """
    (trace,) = [t for t in program(tmp_path, body, header=HEAD).traces if t.entry]
    assert not list(trace.of(StateLoaded))


def test_a_result_that_leads_to_nothing_makes_no_configuration(tmp_path: Path) -> None:
    body = """
        def name(path):
            if os.path.exists(path):
                return "a"
            return None

        model = nn.Linear(8, 8)
        fully_shard(model)
        if name(sys.argv[1]) is None:
            print("nothing")
        torch.save(model.state_dict(), "a")
    """
    (trace,) = program(tmp_path, body, header=HEAD).traces
    assert len(list(trace.of(Saved))) == 1


ALTERNATIVES = {
    "or": "plain = args.strategy == 'none' or world_size == 1",
    "and": "plain = not (args.strategy != 'none' and world_size > 1)",
    "nested": "plain = (args.strategy == 'none' or args.debug) or world_size == 1",
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_an_operand_decides_together_with_other_conditions(name: str, tmp_path: Path) -> None:
    """The model is sharded in one configuration, and saved in another: both are tried together."""
    found = program(
        tmp_path,
        f"""
        world_size = int(os.environ["WORLD_SIZE"])
        model = nn.Linear(4, 4)
        {ALTERNATIVES[name]}
        if not plain:
            fully_shard(model)
        keep = False
        if args.name is not None:
            keep = True
        if keep and os.path.exists("state.pt"):
            model.load_state_dict(torch.load("state.pt"))
        if keep:
            torch.save(model.state_dict(), "state.pt")
        """,
        header=HEAD,
    )
    kinds = [{type(event) for event in trace.events} for trace in found.traces]
    assert any({Sharded, Saved} <= one for one in kinds)


@pytest.mark.parametrize(
    "value",
    [
        "torch.float16",
        "{'float16': torch.float16, 'float32': torch.float32}[args.dtype]",
        "torch.distributed.fsdp.ShardingStrategy.FULL_SHARD",
    ],
)
@pytest.mark.parametrize("test", ["kind == 'float16'", "'float16' == kind", "kind is None"])
def test_a_dtype_equals_no_text(tmp_path: Path, value: str, test: str) -> None:
    found = program(tmp_path, f"kind = {value}\nif {test}:\n    fully_shard(Net())\n")
    assert not any(events(found, Sharded))
    found = program(tmp_path, f"kind = {value}\nif not ({test}):\n    fully_shard(Net())\n")
    assert all(any(trace.of(Sharded)) for trace in found.traces)


def test_an_entry_that_may_be_a_text(tmp_path: Path) -> None:
    body = "kind = {'a': torch.float16, 'b': 'float16'}[args.kind]\nif kind == 'float16':\n"
    found = program(tmp_path, body + "    fully_shard(Net())\n")
    assert any(events(found, Sharded))
