"""FSDP423 and FSDP424: rows of all ranks in a contrastive loss, in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_gather as gather_with_gradient


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, batch):
        return F.normalize(self.image(batch), dim=-1), F.normalize(self.text(batch), dim=-1)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = Towers()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(4, 2, 8):
    image, text = model(batch)
    n = len(image)
    offset = rank * n
    parts = [torch.empty_like(text) for _ in range(world)]
    {gather}
    {labels}
    {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
IN_NO_GRAD = "dist.all_gather(parts, text)\n    with torch.no_grad(): everyone = torch.cat(parts)"
GATHER = "dist.all_gather(parts, text); everyone = torch.cat(parts)"
WITH_GRADIENT = "everyone = torch.cat(gather_with_gradient(text))"
LABELS = "labels = torch.arange(n) + offset"
FROM_ZERO = "labels = torch.arange(n)"
LOSS = "loss = F.cross_entropy(image @ everyone.t() / 0.1, labels)"


def found(tmp_path: Path, code: str, gather: str, labels: str, loss: str) -> bool:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM.format(gather=gather, labels=labels, loss=loss))
    rule = rule_by_code(code)
    assert rule is not None
    return bool(list(check(load([path]), [rule()])))


@pytest.mark.parametrize(
    ("gather", "loss"),
    [
        (GATHER, LOSS),
        ("dist.all_gather(parts, text.contiguous()); everyone = torch.vstack(parts)", LOSS),
        ("dist.all_gather(tensor=text, tensor_list=parts); everyone = torch.stack(parts)", LOSS),
        (
            "everyone = text.new_empty(n * world, 4); dist.all_gather_into_tensor(everyone, text)",
            LOSS,
        ),
        (GATHER, "loss = torch.logsumexp(torch.matmul(image, everyone.T), dim=1).mean()"),
        (GATHER, "loss = (image[:, None] - everyone).square().sum(-1).mean() + image.mean()"),
    ],
)
def test_gathered_outputs_in_a_loss_have_no_gradient(
    tmp_path: Path, gather: str, loss: str
) -> None:
    assert found(tmp_path, "FSDP423", gather, LABELS, loss)


@pytest.mark.parametrize(
    ("gather", "loss"),
    [
        (WITH_GRADIENT, LOSS),
        ("dist.all_gather(parts, text.detach()); everyone = torch.cat(parts)", LOSS),
        ("dist.all_gather(parts, text); parts[rank] = text; everyone = torch.cat(parts)", LOSS),
        (
            "dist.all_gather(parts, text); "
            "everyone = torch.cat([text, *[p for i, p in enumerate(parts) if i != rank]])",
            LOSS,
        ),
        (
            "gathers = torch.no_grad()(dist.all_gather); gathers(parts, text); "
            "everyone = torch.cat(parts)",
            LOSS,
        ),
        (
            "dist.all_gather(parts, text); rows = list(parts); rows[rank] = text; "
            "everyone = torch.cat(rows)",
            LOSS,
        ),
        (GATHER, "loss = image.mean(); print((image @ everyone.t()).mean())"),
        (GATHER, "loss = F.cross_entropy(image @ everyone.detach().t(), labels)"),
        ("dist.all_gather(parts, batch); everyone = torch.cat(parts)", LOSS),
        (IN_NO_GRAD, LOSS),
    ],
)
def test_constants_and_restored_rows_are_silent(tmp_path: Path, gather: str, loss: str) -> None:
    assert not found(tmp_path, "FSDP423", gather, LABELS, loss)


@pytest.mark.parametrize(
    ("gather", "labels", "loss"),
    [
        (WITH_GRADIENT, FROM_ZERO, LOSS),
        (GATHER, FROM_ZERO, LOSS),
        (IN_NO_GRAD, FROM_ZERO, LOSS),
        (WITH_GRADIENT, "labels = torch.arange(image.size(0), device=image.device).long()", LOSS),
        (
            WITH_GRADIENT,
            FROM_ZERO,
            "loss = nn.CrossEntropyLoss()(2.0 * image @ everyone.T, labels)",
        ),
        (WITH_GRADIENT, FROM_ZERO, "loss = F.cross_entropy(image.matmul(everyone.T), labels)"),
    ],
)
def test_labels_from_zero(tmp_path: Path, gather: str, labels: str, loss: str) -> None:
    assert found(tmp_path, "FSDP424", gather, labels, loss)


@pytest.mark.parametrize(
    ("gather", "labels", "loss"),
    [
        (WITH_GRADIENT, LABELS, LOSS),
        (WITH_GRADIENT, "labels = torch.arange(offset, offset + n)", LOSS),
        (WITH_GRADIENT, "labels = torch.arange(n); labels += offset", LOSS),
        (WITH_GRADIENT, FROM_ZERO, "loss = F.cross_entropy(image @ text.t(), labels)"),
        (
            "others = [p for i, p in enumerate(gather_with_gradient(text)) if i != rank]; "
            "everyone = torch.cat([text, *others])",
            FROM_ZERO,
            LOSS,
        ),
        (
            WITH_GRADIENT,
            FROM_ZERO,
            "loss = F.cross_entropy((image @ everyone.t())[:, offset : offset + n], labels)",
        ),
        (WITH_GRADIENT, "labels = torch.arange(len(everyone))", "loss = F.cross_entropy("
         "torch.cat(gather_with_gradient(image)) @ everyone.t(), labels)"),
        (WITH_GRADIENT, FROM_ZERO, "loss = F.cross_entropy(image @ everyone.roll(-offset, 0).t(), labels)"),
    ],
)  # fmt: skip
def test_other_labels_and_other_rows_are_silent(
    tmp_path: Path, gather: str, labels: str, loss: str
) -> None:
    assert not found(tmp_path, "FSDP424", gather, labels, loss)
