"""FSDP428: losses times the number of ranks, over a number of each rank's own."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
world = dist.get_world_size()
model = fully_shard(nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(dataset, 4, sampler=DistributedSampler(dataset))

def total(number):
    dist.all_reduce(number)
    return number

"""
TURN = """
n = (y != -100).sum()
{reduce}
loss = F.cross_entropy(model(x), y, reduction="sum")
{scale}
{after}
optimizer.step()
optimizer.zero_grad()
"""
PLAIN = "(loss * world / n).backward()"


@pytest.mark.parametrize(
    ("reduce", "scale", "after", "found"),
    [
        ("pass", PLAIN, "pass", True),
        ("pass", "(world * loss / n).backward()", "pass", True),
        ("pass", "(loss / n * world).backward()", "pass", True),
        ("pass", "(loss / n * dist.get_world_size() / 2).backward()", "pass", True),
        ("pass", "loss.mul(world).div(n).backward()", "pass", True),
        ("pass", "loss *= world\nloss /= n\nloss.backward()", "pass", True),
        ("n = n.item()", PLAIN, "pass", True),
        ("n = max(n.item(), 1)", PLAIN, "pass", True),
        ("dist.all_reduce(n)", PLAIN, "pass", False),
        ("n = total(n)", PLAIN, "pass", False),
        ("n = dist_nn.all_reduce(n)", PLAIN, "pass", False),
        ("n = helper(n)", PLAIN, "pass", False),
        (
            "parts = [torch.zeros_like(n) for _ in range(world)]\n"
            "dist.all_gather(parts, n)\nn = sum(parts)",
            PLAIN,
            "pass",
            False,
        ),
        (
            "parts = [None] * world\ndist.all_gather_object(parts, n.item())\nn = sum(parts)",
            PLAIN,
            "pass",
            False,
        ),
        ("n = n * world", PLAIN, "pass", False),
        ("n *= world", PLAIN, "pass", False),
        ("n = y.numel()", PLAIN, "pass", False),
        ("pass", "(loss * world / n / world).backward()", "pass", False),
        ("pass", "(loss * world / n * weight).backward()", "pass", False),
        ("pass", "(loss / n).backward()", "pass", False),
        ("pass", "(loss * world).backward()", "pass", False),
        ("pass", "(loss * world / n + other).backward()", "pass", False),
        ("pass", PLAIN, "for p in model.parameters(): p.grad.div_(world)", False),
        ("pass", "model.set_gradient_divide_factor(1.0)\n" + PLAIN, "pass", False),
    ],
)
def test_the_divisor_of_a_loss_times_the_number_of_ranks(
    tmp_path: Path, reduce: str, scale: str, after: str, found: bool
) -> None:
    turn = TURN.format(reduce=reduce, scale=scale, after=after)
    text = "for x, y in loader:\n" + textwrap.indent(turn, "    ")
    codes = [one.rule.code for one in findings(program(tmp_path, text, header=HEAD), "FSDP428")]
    assert codes == ["FSDP428"] * found


@pytest.mark.parametrize(
    ("names", "part", "found"),
    [
        ('("dp",)', "mesh", True),
        ('("rows",)', "mesh", True),
        ('("rows", "columns")', "mesh", True),
        ('("rows", "columns")', 'mesh["rows"]', False),  # another parallelism over the columns
        ('("tp",)', "mesh", False),
    ],
)
def test_a_mesh_that_the_model_is_sharded_over(
    tmp_path: Path, names: str, part: str, found: bool
) -> None:
    mesh = (
        "from torch.distributed.device_mesh import init_device_mesh\n"
        f'mesh = init_device_mesh("cpu", (2,) * len({names}), mesh_dim_names={names})\n'
    )
    head = HEAD.replace("model = fully_shard(nn.Linear(8, 4))", f"{mesh}model = nn.Linear(8, 4)")
    head = head.replace("optimizer =", f"fully_shard(model, mesh={part})\noptimizer =")
    turn = TURN.format(reduce="pass", scale=PLAIN, after="pass")
    text = "for x, y in loader:\n" + textwrap.indent(turn, "    ")
    assert bool(findings(program(tmp_path, text, header=head), "FSDP428")) == found
