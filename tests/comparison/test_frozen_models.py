"""Models that functions other than `requires_grad_` freeze."""

from __future__ import annotations

from pathlib import Path

from fsdplint.comparison.compare import Outcome
from fsdplint.engine.comparing import compare_sides, side

PREPARED = """\
import os
import torch
import torch.distributed as dist
from peft import prepare_model_for_kbit_training
from torch.distributed.fsdp import {0}

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
{1}model = torch.nn.Linear(4, 4)
if os.environ.get("PREPARE"):
    model = prepare_model_for_kbit_training(model)
{2}
model(torch.ones(1, 4)).sum().backward()
"""


def test_a_model_that_another_function_freezes(tmp_path: Path) -> None:
    """The function gets the model as its first argument, not the value of `requires_grad`."""
    other = "teacher = torch.nn.Linear(4, 4)\n"
    (tmp_path / "before.py").write_text(
        PREPARED.format("FullyShardedDataParallel as FSDP", "", "model = FSDP(model)")
    )
    (tmp_path / "after.py").write_text(PREPARED.format("fully_shard", other, "fully_shard(model)"))
    result = compare_sides(side(tmp_path / "before.py"), side(tmp_path / "after.py"))
    assert not [one for one in result.facts if one.outcome is Outcome.DIFFERS]


def test_a_model_of_unknown_class_that_another_function_freezes(tmp_path: Path) -> None:
    text = PREPARED.replace("import prepare", "import get_peft_model, prepare").replace(
        "import os\n", "import os\nfrom models import build, config\n"
    )
    before, after = (
        text.replace("torch.nn.Linear(4, 4)\nif", f"get_peft_model({given})\nif")
        for given in ("build(), config", "model=build(), peft_config=config")
    )
    (tmp_path / "before.py").write_text(
        before.format("FullyShardedDataParallel as FSDP", "", "model = FSDP(model)")
    )
    (tmp_path / "after.py").write_text(after.format("fully_shard", "", "fully_shard(model)"))
    result = compare_sides(side(tmp_path / "before.py"), side(tmp_path / "after.py"))
    assert not [one for one in result.facts if one.topic == "requires_grad"]
