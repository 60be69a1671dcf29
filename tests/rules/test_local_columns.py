"""FSDP149: losses over the columns of one rank of tensor parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

SCRIPT = """
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleOutput, RowwiseParallel, parallelize_module
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16)

    def forward(self, x):
        return {returned}


mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
model = Model()
parallelize_module(model, mesh["tp"], {{"head": {style}}})
fully_shard(model, mesh=mesh["dp"])
for x, y in loader:
    logits = model(x)
    {loss}.backward()
"""
HEAD, LOSS = "self.head(self.body(x))", "F.cross_entropy(logits, y)"


def is_found(folder: Path, style: str, returned: str = HEAD, loss: str = LOSS) -> bool:
    code = SCRIPT.format(style=style, returned=returned, loss=loss)
    return bool(findings(program(folder, code), "FSDP149"))


@pytest.mark.parametrize(
    "style",
    [
        "ColwiseParallel()",
        "ColwiseParallel(output_layouts=None)",
        "ColwiseParallel(output_layouts=Shard(-1))",
        "ColwiseParallel(input_layouts=Shard(1), use_local_output=True)",
    ],
)
@pytest.mark.parametrize(
    ("returned", "loss"),
    [
        (HEAD, LOSS),
        (f"{HEAD}.float()", "F.cross_entropy(logits.view(-1, 16), y.view(-1))"),
        (HEAD, "nn.CrossEntropyLoss()(logits.flatten(0, 1), y.flatten())"),
    ],
)
def test_a_loss_over_some_columns(tmp_path: Path, style: str, returned: str, loss: str) -> None:
    assert is_found(tmp_path, style, returned, loss)


@pytest.mark.parametrize(
    "style",
    [
        "ColwiseParallel(output_layouts=Replicate())",
        "ColwiseParallel(output_layouts=Shard(1))",
        "ColwiseParallel(output_layouts=layout)",
        "ColwiseParallel(use_local_output=False)",
        "ColwiseParallel(use_local_output=local)",
        "ColwiseParallel(**options)",
        "RowwiseParallel()",
    ],
)
def test_other_layouts(tmp_path: Path, style: str) -> None:
    assert not is_found(tmp_path, style)


@pytest.mark.parametrize(
    ("returned", "loss"),
    [
        (HEAD, "F.mse_loss(logits, y)"),
        (HEAD, "F.cross_entropy(gather(logits), y)"),
        ("self.body(x)", LOSS),
        ("gather(self.head(self.body(x)))", LOSS),
    ],
)
def test_whole_outputs(tmp_path: Path, returned: str, loss: str) -> None:
    assert not is_found(tmp_path, "ColwiseParallel()", returned, loss)


WHOLE = "ColwiseParallel(use_local_output=False)"


@pytest.mark.parametrize(
    ("style", "use"),
    [
        ("ColwiseParallel()", "logits.argmax(dim=-1)"),
        ("ColwiseParallel()", "torch.argmax(logits[:, -1], dim=-1)"),
        ("ColwiseParallel()", "logits[:, -1, :].float().topk(5)"),
        ("ColwiseParallel()", "F.softmax(logits.float() / 0.7, dim=-1)"),
        ("ColwiseParallel()", "logits.log_softmax(-1)"),
        (WHOLE, "logits.to_local().argmax(dim=-1)"),
        (WHOLE, "torch.softmax(logits.to_local(), dim=-1)"),
        (WHOLE, "F.cross_entropy(logits.to_local(), y)"),
    ],
)
def test_a_choice_among_some_columns(tmp_path: Path, style: str, use: str) -> None:
    assert is_found(tmp_path, style, loss=f"({use})")


@pytest.mark.parametrize(
    ("style", "use"),
    [
        ("ColwiseParallel(output_layouts=Replicate())", "logits.argmax(dim=-1)"),
        (WHOLE, "logits.argmax(dim=-1)"),
        (WHOLE, "logits.full_tensor().argmax(dim=-1)"),
        (WHOLE, "logits.redistribute(placements=[Replicate()]).to_local().argmax(dim=-1)"),
        (WHOLE, "F.cross_entropy(logits, y)"),
        ("ColwiseParallel()", "logits.argmax(dim=0)"),
        ("ColwiseParallel()", "logits.softmax(dim=1)"),
        ("ColwiseParallel()", "logits.view(4, 2, -1).softmax(dim=-1)"),
        ("ColwiseParallel()", "gather(logits).argmax(dim=-1)"),
        ("ColwiseParallel()", "logits.mean(dim=-1)"),
        ("ColwiseParallel()", "(logits @ weight).softmax(dim=-1)"),
    ],
)
def test_other_choices(tmp_path: Path, style: str, use: str) -> None:
    assert not is_found(tmp_path, style, loss=f"({use})")


def test_a_choice_that_the_ranks_put_together(tmp_path: Path) -> None:
    loss = "best = logits.max(); place = logits.argmax(dim=-1); dist.all_reduce(best)\n    (best)"
    assert not is_found(tmp_path, "ColwiseParallel()", loss=loss)
