"""FSDP403, FSDP405, FSDP408 to FSDP410 and FSDP601 on what the examples don't show: found or silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import all_rules

CODES = ("FSDP403", "FSDP405", "FSDP408", "FSDP409", "FSDP410", "FSDP601")
RULES = [rule() for rule in all_rules() if rule.code in CODES]

HEAD = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

dist.init_process_group("gloo")
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def codes(tmp_path: Path, body: str, head: str = HEAD) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(head + body)
    return [finding.rule.code for finding in check(load([path]), RULES)]


def loop(*lines: str) -> str:
    return "for step, batch in enumerate(batches):\n" + "".join(f"    {line}\n" for line in lines)


BACKWARD = "model(batch).sum().backward()"
STEP = "optimizer.step()"


@pytest.mark.parametrize(
    "lines",
    [
        # the parameters are whole within the forward, after it, and by unshard()
        ("print(model(batch).sum(), [p.norm().item() for p in model.parameters()])",),
        (BACKWARD, "model.unshard()", "print([p.norm().item() for p in model.parameters()])"),
        # what is read is no reduction over everything, or torch has put it together
        (BACKWARD, "print([p.grad.norm(dim=0).max().item() for p in model.parameters()])"),
        (BACKWARD, "print([p.grad[0].norm().item() for p in model.parameters()])"),
        (BACKWARD, "print([(p.grad.norm() + 1).item() for p in model.parameters()])"),
        (BACKWARD, "print([p.grad.to_local().norm().item() for p in model.parameters()])"),
        (BACKWARD, "print([p.numel() for p in model.parameters()])"),
        # the parts are added up in a group
        (
            BACKWARD,
            "total = torch.tensor([p.grad.norm().item() ** 2 for p in model.parameters()])",
            "dist.all_reduce(total, group=group)",
        ),
        # or by something that is out of sight
        (
            BACKWARD,
            "total = torch.tensor([p.grad.norm().item() ** 2 for p in model.parameters()])",
            "total = accelerator.reduce(total)",
        ),
        # plain or sharded, the program asks
        (
            BACKWARD,
            "for p in model.parameters():",
            "    grad = p.grad",
            "    if isinstance(grad, DTensor):",
            "        grad = grad.full_tensor()",
            "    print(grad.norm().item())",
        ),
    ],
)
def test_no_local_norm(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert codes(tmp_path, loop(*lines)) == []


@pytest.mark.parametrize(
    "line",
    [
        "print(sum(p.grad.detach().float().pow(2).sum().item() for p in model.parameters()))",
        "print([torch.linalg.vector_norm(p.grad, 2).item() for p in model.parameters()])",
        "print([bool(torch.isnan(p.grad).any()) for p in model.parameters()])",
        "print({n: p.grad.data.norm(2).cpu().item() for n, p in model.named_parameters()})",
        "if any(float(p.grad.abs().max()) > 9 for p in model.parameters()): print(step)",
    ],
)
def test_local_norm(tmp_path: Path, line: str) -> None:
    assert codes(tmp_path, loop(BACKWARD, line, STEP)) == ["FSDP405"]


NORMS = "largest = max(p.grad.norm().item() for p in model.parameters())"


@pytest.mark.parametrize(
    ("reduced", "found"),
    [
        (("mean = loss.detach().clone()", "dist.all_reduce(mean)"), True),
        (("total = torch.tensor(largest)", "dist.all_reduce(total)"), False),
        (("total = torch.stack([loss, torch.tensor(largest)])", "dist.all_reduce(total)"), False),
        (("total = loss.detach() + largest", "dist.all_reduce(total)"), False),
        (("total = loss.new_tensor(largest)", "dist.all_reduce(total)"), False),
    ],
)
def test_the_reduction_of_a_loss_reduces_no_norm(
    tmp_path: Path, reduced: tuple[str, ...], found: bool
) -> None:
    body = loop("loss = model(batch).sum()", "loss.backward()", NORMS, *reduced, STEP)
    assert ("FSDP405" in codes(tmp_path, body)) is found


def test_ignored_parameters_may_be_plain(tmp_path: Path) -> None:
    head = HEAD.replace("(model)\n", "(model, ignored_params={model[2].weight})\n")
    assert codes(tmp_path, loop(BACKWARD, "[p.grad.norm().item() for p in model.parameters()]"),
                 head) == []  # fmt: skip


OFF = "model.set_requires_gradient_sync(False)"
ON = "model.set_requires_gradient_sync(True)"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((OFF, BACKWARD, ON, STEP), True),
        ((OFF, BACKWARD, ON, BACKWARD, STEP), False),
        (("if step % 2: " + OFF, BACKWARD, STEP), True),
        (("if step % 2: " + OFF, "else: " + ON, BACKWARD, "if step % 2 == 0: " + STEP), False),
        (("model.set_requires_gradient_sync(requires_gradient_sync=False)", BACKWARD, STEP), True),
        (("model.set_requires_gradient_sync(step % 2 == 0)", BACKWARD, STEP), False),
        ((BACKWARD, STEP, OFF, "evaluate(batch)", ON), False),
    ],
)
def test_sync_until_the_step(tmp_path: Path, lines: tuple[str, ...], found: bool) -> None:
    assert ("FSDP403" in codes(tmp_path, loop(*lines))) is found


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("dist.all_reduce(loss); loss = loss / dist.get_world_size()", True),
        ("dist.all_reduce(loss); loss.div_(dist.get_world_size())", True),
        ("dist.all_reduce(loss)", False),
        ("dist.all_reduce(loss, op=dist.ReduceOp.AVG)", False),
        ("shown = loss.detach(); dist.all_reduce(shown); shown /= dist.get_world_size()", False),
        ("shown = loss * 1; dist.all_reduce(shown); shown /= dist.get_world_size()", False),
        ("dist.all_reduce(loss); loss = loss / accumulate", False),
    ],
)
def test_averaged_loss(tmp_path: Path, before: str, found: bool) -> None:
    lines = ("loss = model(batch).mean()", before, "loss.backward()", STEP)
    assert ("FSDP408" in codes(tmp_path, loop(*lines))) is found


@pytest.mark.parametrize(
    ("total", "found"),
    [
        ("loss / tokens + 0.1 * penalty", True),
        ("0.1 * penalty + loss / tokens", True),
        ("loss / tokens - penalty", True),
        ("(loss / tokens + 0.1 * penalty) * dist.get_world_size()", False),
        ("loss * dist.get_world_size() / tokens + 0.1 * penalty", False),
        ("loss / len(batch) + 0.1 * penalty", False),
    ],
)
def test_a_sum_of_losses_of_which_one_is_divided(tmp_path: Path, total: str, found: bool) -> None:
    out = ("out = model(batch)", "loss, penalty = out.sum(), out.pow(2).mean()")
    count = ("tokens = torch.tensor(batch.numel())", "dist.all_reduce(tokens)")
    lines = (*out, *count, f"total = {total}", "total.backward()", STEP)
    assert ("FSDP408" in codes(tmp_path, loop(*lines))) is found


def test_reshard_of_every_module_before_the_step(tmp_path: Path) -> None:
    off = "model.set_reshard_after_backward(False)\n"
    reshard = ("for m in model.modules():", "    if isinstance(m, FSDPModule): m.reshard()")
    assert codes(tmp_path, off + loop(BACKWARD, STEP)) == ["FSDP410"]
    assert codes(tmp_path, off + loop(BACKWARD, *reshard, STEP)) == []
    assert codes(tmp_path, off + loop(BACKWARD)) == []


@pytest.mark.parametrize("value", ["False", "None", "2", "args.reshard"])
def test_other_values_at_the_root(tmp_path: Path, value: str) -> None:
    head = HEAD.replace("(model)\n", f"(model, reshard_after_forward={value})\n")
    assert codes(tmp_path, loop(BACKWARD, STEP), head) == []


def test_one_call_for_root_and_parts_is_found_but_not_fixed(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    head = HEAD.replace(
        "fully_shard(model[0])\nfully_shard(model)\n",
        "for m in (model[0], model):\n    fully_shard(m, reshard_after_forward=True)\n",
    )
    path.write_text(head + loop(BACKWARD, STEP))
    (finding,) = check(load([path]), RULES)
    assert finding.rule.code == "FSDP601" and finding.fix is None


@pytest.mark.parametrize(("target", "partial"), [(None, False), ("2.9", True), ("2.10", False)])
@pytest.mark.parametrize(
    "norm",
    [
        "clip_grad_norm_(model.parameters(), 1.0)",
        "clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)",
        "get_total_norm([p.grad for p in model.parameters() if p.grad is not None])",
    ],
)
def test_the_norm_of_clipping_is_whole_since_torch_2_10(
    tmp_path: Path, target: str | None, partial: bool, norm: str
) -> None:
    path = tmp_path / "program.py"
    clip = f"norm = torch.nn.utils.{norm}"
    reads = ("print(norm.item())", "print(f'{norm.full_tensor().item():.3f}')")
    path.write_text(HEAD + loop(BACKWARD, clip, *reads, STEP))
    options = Options(target=explicit(target))
    found = check(load([path]), RULES, options)
    assert [one.rule.code for one in found] == ["FSDP405"] * partial
    assert all("torch.nn.utils" in one.message for one in found)
    text = fix(Workspace([path], options=options), RULES).texts.get(path, "")
    assert ("print(norm.full_tensor().item())" in text) is partial
