"""Numbers that a loop counts, and results of methods of unknown objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import BackwardRun, Collective, ModuleBuilt, OptimizerStepped, Trace

COUNTER = """\
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.step, self.every = model, optimizer, {start}, args.every

    def train_step(self, batch):
        waits = (self.step + 1) % self.every != 0
        if waits:
            self.model.set_requires_gradient_sync(False)
            self.model(batch).sum().backward()
        else:
            {on}
            self.model(batch).sum().backward()
            self.optimizer.step()
        self.step += 1

dist.init_process_group("gloo")
model = Net()
fully_shard(model)
trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1))
for batch in range(args.batches):
    trainer.train_step(batch)
"""


@pytest.mark.parametrize("start", ["0", "args.start"])
@pytest.mark.parametrize("on", ["pass", "self.model.set_requires_gradient_sync(True)"])
def test_a_test_of_a_counter_differs_between_turns(tmp_path: Path, start: str, on: str) -> None:
    found = program(tmp_path, COUNTER.format(start=start, on=on))
    assert any(events(found, OptimizerStepped))
    assert len(findings(found, "FSDP403")) == (on == "pass")


CHOICE = """\
from transformers import AutoConfig, AutoModelForCausalLM

def load(name):
    if name.startswith("first"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name)), 1
    elif name.startswith("second"):
        return AutoModelForCausalLM.from_pretrained(name), 2
    raise ValueError(name)

model, number = load(args.name)
fully_shard(model)
model(torch.ones(1))
"""


def test_calls_with_other_constants_are_other_conditions(tmp_path: Path) -> None:
    found = program(tmp_path, CHOICE)
    assert any(events(found, ModuleBuilt))


REDUCED = """\
model = Net()
for layer in model.layers:
    fully_shard(layer)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dist.init_process_group("gloo")
for step in range(args.steps):
    total = {start}
    for batch in range(args.batches):
        loss = model(torch.ones(1)).sum()
        loss.backward()
        total += {added}
    dist.all_reduce({keyword}total)
    optimizer.step()
"""


def _of_output(trace: Trace) -> bool:
    reduced = [event for event in trace.of(Collective) if event.api == "all_reduce"]
    return bool(reduced) and all(event.of_output for event in reduced)


@pytest.mark.parametrize("start", ["0", "torch.zeros(1)", "torch.tensor(0.0)"])
@pytest.mark.parametrize("keyword", ["", "tensor="])
def test_a_sum_of_losses_is_no_gradient(tmp_path: Path, start: str, keyword: str) -> None:
    body = REDUCED.format(start=start, keyword=keyword, added="loss.detach().clone()")
    found = program(tmp_path, body)
    assert all(map(_of_output, found.traces))
    assert len(findings(found, "FSDP105")) == 1


def test_a_sum_of_gradients_is_no_loss(tmp_path: Path) -> None:
    added = "loss.detach() * 0 + model.head.weight.grad"
    body = REDUCED.format(start="torch.zeros(1)", keyword="", added=added)
    assert not any(map(_of_output, program(tmp_path, body).traces))


INDEX = """\
dist.init_process_group("gloo")
model = Net()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
count = {count}
for step in range(args.steps):
    for index in range({bounds}):
        waits = {waits}
        model.set_requires_gradient_sync(not waits)
        model(torch.ones(1)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("count", ["4", "args.every", "args.batch // args.size"])
@pytest.mark.parametrize(
    ("waits", "always"),
    [
        ("index < count", True),
        ("index != count", True),
        ("not index == count", True),
        ("index < count - 1", False),
        ("index + 1 < count", False),
        ("(index + 1) % count != 0", False),
    ],
)
def test_an_index_is_below_the_end_of_its_range(
    tmp_path: Path, count: str, waits: str, *, always: bool
) -> None:
    found = program(tmp_path, INDEX.format(count=count, bounds="count", waits=waits))
    assert len(findings(found, "FSDP403")) == always


def test_a_step_below_zero_has_another_end(tmp_path: Path) -> None:
    body = INDEX.format(count="4", bounds="8, count, -1", waits="index != count")
    assert not findings(program(tmp_path, body), "FSDP403")


ENGINE = """\
class Engine:
    def __init__(self):
        self.handlers, self.step = [], 0

    def on(self, every{default}):
        def attach(function):
            self.handlers.append((function, every))
            return function
        return attach

    def run(self):
        while self.step < args.steps:
            self.step += 1
            for function, every in self.handlers:
                if {test}:
                    function()

dist.init_process_group("gloo")
model = fully_shard(Net())
engine = Engine()

@engine.on({every})
def train():
    model(torch.ones(1)).sum().backward()

engine.run()
"""


@pytest.mark.parametrize(
    ("default", "every", "test", "tested"),
    [
        ("=1", "", "self.step % every == 0", False),
        ("=2", "1", "not self.step % every", False),
        ("=1", "2", "self.step % every == 0", True),
        ("=1", "args.every", "self.step % every == 0", True),
        ("=1", "", "self.step / args.every % 1 == 0", True),
    ],
)
def test_each_number_is_a_multiple_of_one(
    tmp_path: Path, default: str, every: str, test: str, *, tested: bool
) -> None:
    found = program(tmp_path, ENGINE.format(default=default, every=every, test=test))
    guards = {guard.text for event in events(found, BackwardRun) for guard in event.guards}
    assert (test.removeprefix("not ") in {text.removeprefix("not ") for text in guards}) is tested
