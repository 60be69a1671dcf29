"""FSDP418 where each turn of a loop sets the gradients to zero, and the step follows the loop."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = nn.Linear(4, 1)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(torch.randn(60, 2, 4))

"""


def findings(folder: Path, body: str) -> int:
    path = folder / "program.py"
    path.write_text(HEAD + textwrap.dedent(body))
    rule = rule_by_code("FSDP418")()
    return len({f.events[0].site for trace in load([path]).traces for f in rule.check(trace)})


WRONG = """
for step in range(5):
    for micro in range(3):
        optimizer.zero_grad()
        model(next(batches)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def test_the_step_after_the_loop(tmp_path: Path) -> None:
    assert findings(tmp_path, WRONG) == 1


def test_a_function_of_a_micro_batch(tmp_path: Path) -> None:
    body = """
    def micro_batch(x):
        optimizer.zero_grad()
        (model(x).sum() / 3).backward()

    while True:
        for micro in range(3):
            micro_batch(next(batches))
        optimizer.step()
    """
    assert findings(tmp_path, body) == 1


@pytest.mark.parametrize(
    "line, other",
    [
        ("        optimizer.zero_grad()\n", ""),
        ("    optimizer.step()", "        optimizer.step()"),
        ("    for micro in range(3):", "    for micro in range(1):"),
        ("    for micro in range(3):", "    while unknown():"),
        (".backward()\n", ".backward()\n        if unknown(): break\n"),
        (".backward()\n", ".backward()\n        kept = [p.grad for p in model.parameters()]\n"),
        (".backward()\n", ".backward()\n        unknown(model)\n"),
        ("        optimizer.zero_grad()", "        if micro == 0: optimizer.zero_grad()"),
        ("        model(", "        model.set_requires_gradient_sync(micro == 2)\n        model("),
    ],
)
def test_programs_that_may_want_it(tmp_path: Path, line: str, other: str) -> None:
    assert line in WRONG
    assert findings(tmp_path, WRONG.replace(line, other)) == 0


HOOK = "p.register_post_accumulate_grad_hook(lambda p: sums[p].add_(p.grad))"


@pytest.mark.parametrize(
    ("mark", "number"),
    [("p.decays = p.ndim > 1", 1), ("p.master = p.detach().clone()", 1), (HOOK, 0)],
)
def test_attributes_of_parameters_hold_no_gradients(tmp_path: Path, mark: str, number: int) -> None:
    sums = "sums = {p: torch.zeros_like(p) for p in model.parameters()}\n"
    body = f"{sums}for p in model.parameters():\n    {mark}\n{textwrap.dedent(WRONG)}"
    assert findings(tmp_path, body) == number


def test_a_sum_of_gradients_in_an_attribute(tmp_path: Path) -> None:
    body = """
    for p in model.parameters():
        p.total = torch.zeros_like(p)
    for step in range(5):
        for micro in range(3):
            optimizer.zero_grad()
            model(next(batches)).sum().backward()
            for p in model.parameters():
                p.total += p.grad
        for p in model.parameters():
            p.grad = p.total
        optimizer.step()
    """
    assert findings(tmp_path, body) == 0


FSDP1 = """
from contextlib import nullcontext
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
wrapped = FSDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
for step in range(5):
    for micro in range(turns):
        optimizer.zero_grad()
        last = micro == turns - 1
        {context}:
            wrapped(next(batches)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "context",
    [
        "with nullcontext() if last else wrapped.no_sync()",
        "with wrapped.no_sync() if micro < turns - 1 else nullcontext()",
        "if True",
    ],
)
def test_no_sync_keeps_the_gradients_where_zero_grad_finds_them(
    tmp_path: Path, context: str
) -> None:
    assert findings(tmp_path, FSDP1.format(context=context)) == 1
    once = FSDP1.replace("optimizer.zero_grad()", "if micro == 0: optimizer.zero_grad()")
    assert findings(tmp_path, once.format(context=context)) == 0


EVERY_NTH = """
import sys
accumulation = int(sys.argv[1])
for step, batch in enumerate(batches):
    loss = model(batch).sum() / accumulation
    optimizer.zero_grad()
    loss.backward()
    {before}
    if {test}:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
COUNTED = "(step + 1) % accumulation == 0"


@pytest.mark.parametrize(
    ("test", "before", "number"),
    [
        (COUNTED, "", 1),
        (f"{COUNTED} or step == 59", "", 1),
        ("step % 4 == 3", "", 1),
        ("step % 1 == 0", "", 0),
        ("loss.isfinite()", "", 0),
        ("True", "", 0),
        (COUNTED, "sums = [p.grad.clone() for p in model.parameters()]", 0),
        (COUNTED, "model.set_requires_gradient_sync(step % 2 == 0)", 0),
    ],
)
def test_a_step_in_every_nth_turn(tmp_path: Path, test: str, before: str, number: int) -> None:
    assert findings(tmp_path, EVERY_NTH.format(test=test, before=before)) == number


def test_a_backward_pass_of_the_turns_with_a_step(tmp_path: Path) -> None:
    body = """
    critic = nn.Linear(4, 1)
    others = torch.optim.SGD(critic.parameters(), lr=0.1)
    for step, batch in enumerate(batches):
        others.zero_grad()
        critic(batch).sum().backward()
        others.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            model(batch).sum().backward()
            optimizer.step()
    """
    assert findings(tmp_path, body) == 0
    assert findings(tmp_path, EVERY_NTH.format(test=COUNTED, before="optimizer.step()")) == 0
    later = EVERY_NTH.replace("    optimizer.zero_grad()\n", "") + "        optimizer.zero_grad()\n"
    assert findings(tmp_path, later.format(test=COUNTED, before="")) == 0


COUNTED = """
micro, step = 0, 0
while step < steps:
    for batch in batches:
        micro += 1
        optimizer.zero_grad()
        (model(batch).sum() / every).backward()
        if micro % every == 0:
            micro = 0
            optimizer.step()
            step += 1
            if step >= steps:
                break
"""


def test_a_loop_that_ends_with_the_last_step(tmp_path: Path) -> None:
    numbers = "import sys\nevery, steps = int(sys.argv[1]), int(sys.argv[2])\n"
    assert findings(tmp_path, numbers + COUNTED) == 1
    once = COUNTED.replace("        optimizer.zero_grad()\n", "").replace(
        "optimizer.step()\n", "optimizer.step()\n            optimizer.zero_grad()\n"
    )
    assert findings(tmp_path, numbers + once) == 0
