"""The strategy of Lightning's Trainer becomes `configure_model` of the LightningModule."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import BLOCK, NET, plan

from fsdplint.diagnostics.finding import Safety
from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

HEAD = (
    """\
import os
import torch
import torch.nn as nn
import lightning as L
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp import MixedPrecision


"""
    + BLOCK
    + NET.replace("nn.Module)", "L.LightningModule)").rstrip()
    + """

    def training_step(self, batch, index):
        STEP

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


"""
)
STEP = "return self(batch).sum()"
TRAINER = "trainer = L.Trainer(devices=4, strategy=strategy)\n"
FIT = "trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(64, 8)))\n"


def program(strategy: str = "", trainer: str = TRAINER, fit: str = FIT) -> str:
    return f"strategy = FSDPStrategy({strategy})\n{trainer}{fit}"


def new_text(tmp_path: Path, body: str, step: str = STEP, *, safe: bool = True) -> str:
    """The text behind the training step after the migration."""
    found, text = plan(tmp_path, body, head=HEAD.replace("STEP", step))
    assert [one.reason for one in found.blockers] == []
    assert (found.safety is Safety.SAFE) is safe
    assert "FSDPStrategy(" not in text and "FullyShardedDataParallel" not in text
    return text.partition(f"        {step}\n\n")[2]


def codes(tmp_path: Path, body: str, head: str = HEAD) -> set[str]:
    found, _ = plan(tmp_path, body, head=head.replace("STEP", STEP))
    return {one.code for one in found.blockers}


def test_the_module_shards_itself(tmp_path: Path) -> None:
    text = new_text(tmp_path, program("auto_wrap_policy={Block}"))
    method, _, rest = text.partition("\n\n")
    assert method.splitlines() == [
        "    def configure_model(self):",
        "        if self.device_mesh is None or isinstance(self, FSDPModule):",
        "            return",
        '        mesh = self.device_mesh["data_parallel"]',
        "        for module in reversed(list(self.modules())):",
        "            if isinstance(module, Block):",
        "                fully_shard(module, mesh=mesh)",
        "        fully_shard(self, mesh=mesh)",
        '        for name in ("training_step",):',
        "            register_fsdp_forward_method(self, name)",
    ]
    assert "strategy = ModelParallelStrategy(\n" in rest
    assert "data_parallel_size=4, tensor_parallel_size=1, save_distributed_checkpoint=False" in rest


def test_the_name_of_the_strategy(tmp_path: Path) -> None:
    text = new_text(tmp_path, f'trainer = L.Trainer(devices=4, strategy="fsdp")\n{FIT}')
    assert "strategy=ModelParallelStrategy(" in text and text.count("fully_shard(") == 1


def test_sharded_checkpoints(tmp_path: Path) -> None:
    found, text = plan(
        tmp_path, program('state_dict_type="sharded"'), head=HEAD.replace("STEP", STEP)
    )
    assert "save_distributed_checkpoint" not in text
    assert "sharded checkpoints that FSDP1 wrote cannot be loaded" in [x.text for x in found.notes]


BF16 = TRAINER.replace("4", '4, precision="bf16-mixed"')


def test_a_precision(tmp_path: Path) -> None:
    text = new_text(tmp_path, program("auto_wrap_policy={Block}", BF16))
    assert "param_dtype=torch.bfloat16" in text


def test_a_precision_that_is_chosen_at_run_time(tmp_path: Path) -> None:
    trainer = TRAINER.replace("4", "4, precision=os.environ['P']")
    assert 'self.trainer.precision == "bf16-mixed"' in new_text(tmp_path, program("", trainer))


CALLS = {
    "return self(batch).sum()": True,
    "return self(batch[0]).sum()": True,
    "x, y = batch; return self(x).sum()": True,
    "return self(batch + torch.rand(8)).sum()": False,
    "x = torch.rand(8, 8); return self(x).sum()": False,
}


@pytest.mark.parametrize("step", CALLS)
def test_what_a_step_calls_the_module_with(tmp_path: Path, step: str) -> None:
    """FSDP1 casts the batch alone."""
    assert new_text(tmp_path, program("", BF16), step, safe=CALLS[step])
    assert new_text(tmp_path, program(), step)


def test_activation_checkpointing(tmp_path: Path) -> None:
    text = new_text(tmp_path, program("activation_checkpointing_policy={Block}"))
    assert "apply_activation_checkpointing(" in text


def test_a_module_in_another_file(tmp_path: Path) -> None:
    main = (
        "import lightning as L\nimport torch\nfrom lightning.pytorch.strategies import FSDPStrategy\n"
        "from net import Block, Net\n\n\ndef main():\n"
        "    strategy = FSDPStrategy(auto_wrap_policy={Block})\n"
        f"    {TRAINER}    {FIT}\n\nmain()\n"
    )
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    head = HEAD.replace("STEP", STEP).replace(
        "from lightning.pytorch.strategies import FSDPStrategy\n", ""
    )
    (tmp_path / "net.py").write_text(head, encoding="utf-8")
    (found,) = plans_of(load([tmp_path / "main.py", tmp_path / "net.py"]))
    assert [one.reason for one in found.blockers] == []
    text = "".join(edit.text for edit in found.edits if edit.path.endswith("net.py"))
    assert "isinstance(module, Block)" in text and "def configure_model(self):" in text


@pytest.mark.parametrize("hook", ["self.log_dict(grad_norm(self, 2))", "print(self.head.grad)"])
def test_a_hook_that_reads_gradients(tmp_path: Path, hook: str) -> None:
    step = f"{STEP}\n\n    def on_before_optimizer_step(self, optimizer):\n        {hook}"
    assert new_text(tmp_path, program(), step, safe=False)


def test_a_setting_that_is_read_from_the_strategy(tmp_path: Path) -> None:
    body = program() + "print(trainer.strategy.sharding_strategy)\n"
    assert codes(tmp_path, body) == {"FSDP223-strategy-read"}


def test_several_strategies_of_one_module(tmp_path: Path) -> None:
    body = program("auto_wrap_policy={Block}")
    assert new_text(tmp_path, body + body).count("def configure_model(self):") == 1
    assert codes(tmp_path, body + program()) == {"FSDP223-several-strategies"}


OTHER_BASE = HEAD.replace("L.LightningModule", "zoo.Base").replace("import os", "import os, zoo")
BLOCKED = {
    "module-unknown": (program("", fit="trainer.fit(zoo.make())\n"), HEAD),
    "module-configured": (
        program(),
        HEAD.replace(
            "def forward(self, x):\n        for", "def configure_model(self):\n        for"
        ),
    ),
    "layers-synchronised": (program("", TRAINER.replace("4", "4, sync_batchnorm=True")), HEAD),
    "strategy-argument": (program("", TRAINER.replace("4", "4, plugins=[plugin]")), HEAD),
    "strategy-offloads": (program("cpu_offload=True"), HEAD),
    "precision-unsupported": (program("", TRAINER.replace("4", '4, precision="16-mixed"')), HEAD),
    "devices-unknown": (program("", TRAINER.replace("4", "os.environ['N']")), HEAD),
    "fabric-unknown": (program("", "trainer = zoo.Trainer(strategy)\n"), HEAD),
}


@pytest.mark.parametrize("code", BLOCKED)
def test_what_blocks(tmp_path: Path, code: str) -> None:
    body, head = BLOCKED[code]
    assert f"FSDP223-{code}" in codes(tmp_path, body, head)


def test_a_base_that_is_not_known(tmp_path: Path) -> None:
    assert codes(tmp_path, program(), OTHER_BASE) == {"FSDP223-module-unknown"}


def test_a_policy_that_the_module_cannot_read(tmp_path: Path) -> None:
    body = (
        "def main(policy):\n    strategy = FSDPStrategy(auto_wrap_policy=policy)\n"
        f"    {TRAINER}    {FIT}\n\nmain({{Block}})\n"
    )
    assert codes(tmp_path, body) == {"FSDP223-module-elsewhere"}


@pytest.mark.parametrize("named", [False, True])
def test_the_clipping_of_the_strategy(tmp_path: Path, named: bool) -> None:
    model = "root" if named else "self.trainer.strategy.model"
    lines = [f"{model}.clip_grad_norm_(1.0)"]
    lines = ["root = self.trainer.strategy.model", *lines] if named else lines
    hook = "\n        ".join(["\n\n    def on_before_optimizer_step(self, optimizer):", *lines])
    found, text = plan(tmp_path, program(), head=HEAD.replace("STEP", STEP + hook))
    assert [one.reason for one in found.blockers] == []
    assert f"torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)" in text
    assert "model.clip_grad_norm_" not in text and "root.clip_grad_norm_" not in text
