"""`Trainer.fit` of Lightning: what it calls, and what the ranks have to do together there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.interpreter import Program
from fsdplint.trace import (
    BackwardRun,
    Called,
    Clipped,
    Collective,
    Event,
    GradientsZeroed,
    GradMode,
    OptimizerBuilt,
    OptimizerStepped,
    Prepared,
    Sharded,
)

HEAD = """\
import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy


class Watch(Callback):
    CALLBACK


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def configure_optimizers(self):
        return {"optimizer": torch.optim.AdamW(self.parameters(), lr=1e-3)}

    def training_step(self, batch, batch_idx):
        loss = self.net(batch).square().mean()
        STEP
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.net(batch).mean(), sync_dist=True)

    MORE


module = Module()
rows = torch.randn(64, 8)
train = torch.utils.data.DataLoader(rows, batch_size=4, sampler=SAMPLER)
trainer = L.Trainer(ARGUMENTS, callbacks=[Watch()])
trainer.fit(module, DATA)
"""
FSDP = "devices=4, strategy=FSDPStrategy(auto_wrap_policy={nn.Linear})"
ROOT_ONLY = "devices=4, strategy=FSDPStrategy()"
TRAINED: tuple[type[Event], ...] = (GradientsZeroed, BackwardRun, OptimizerStepped)


def fit(
    folder: Path,
    arguments: str = FSDP,
    *,
    step: str = "",
    callback: str = "",
    more: str = "",
    sampler: str = "None",
    data: str = "train, train",
) -> Program:
    body = HEAD.replace("ARGUMENTS", arguments).replace("SAMPLER", sampler).replace("DATA", data)
    for hole, code, depth in (("STEP", step, 8), ("CALLBACK", callback, 4), ("MORE", more, 4)):
        text = textwrap.indent(textwrap.dedent(code) or "pass", " " * depth).strip()
        body = body.replace(hole, text)
    return program(folder, body)


def kinds(found: Program) -> list[type[Event]]:
    return [type(event) for event in found.traces[0] if isinstance(event, TRAINED)]


@pytest.mark.parametrize(
    ("arguments", "sharded"),
    [
        (FSDP, True),
        ('devices=4, strategy="fsdp"', True),
        ("devices=1, strategy=FSDPStrategy()", False),
        ("devices=4, strategy=DDPStrategy()", False),
        ("devices=4", False),
    ],
)
def test_the_strategy_shards_the_module(arguments: str, sharded: bool, tmp_path: Path) -> None:
    found = fit(tmp_path, arguments)
    modules = [class_of(found, *event.modules) for event in events(found, Prepared)]
    assert modules == (["Module"] if sharded else [])
    assert bool(kinds(found)) is sharded


def test_the_trainer_takes_steps(tmp_path: Path) -> None:
    found = fit(tmp_path)
    assert kinds(found) == [*TRAINED, *TRAINED]
    trace = found.traces[0]
    (optimizer,) = trace.of(OptimizerBuilt)
    assert {event.optimizer for event in trace.of(OptimizerStepped)} == {optimizer.optimizer}
    assert all(event.collective for event in trace.of(BackwardRun))
    called = {event.via: event.grad for event in trace.of(Called)}
    assert (called["training_step"], called["validation_step"]) == (GradMode.ON, GradMode.OFF)


def test_a_step_of_the_program_gets_the_closure(tmp_path: Path) -> None:
    more = """
    def optimizer_step(self, epoch, batch_idx, optimizer, closure):
        closure()
        optimizer.step()
    """
    found = fit(tmp_path, more=more)
    assert kinds(found) == [*TRAINED, *TRAINED]


MANUAL = """
self.automatic_optimization = False
optimizer = self.optimizers()
optimizer.zero_grad()
self.manual_backward(loss)
optimizer.step()
"""


def test_a_module_may_take_the_steps_itself(tmp_path: Path) -> None:
    start = "def on_fit_start(self):\n    self.automatic_optimization = False\n"
    found = fit(tmp_path, step=MANUAL, more=start)
    assert kinds(found) == [*TRAINED, *TRAINED]


ON_RANK_0 = "if self.trainer.is_global_zero:\n    "
CALLBACK = "def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):\n    "
NORM = (
    "def on_after_backward(self):\n    root = self.trainer.strategy.model\n"
    "    if self.global_rank == 0:\n        root.clip_grad_norm_(1.0)\n"
)
ONE_SIDED = {
    "log": {"step": f"{ON_RANK_0}self.log('loss', loss, sync_dist=True)"},
    "state": {"callback": f"{CALLBACK}if trainer.global_rank == 0:\n        module.state_dict()"},
    "forward": {"callback": f"{CALLBACK}if trainer.is_global_zero:\n        module(batch)"},
    "norm": {"more": NORM},
    "gather": {"step": f"{ON_RANK_0}self.all_gather(loss)"},
    "checkpoint": {
        "callback": f"{CALLBACK}if trainer.is_global_zero:\n        trainer.save_checkpoint('x')"
    },
}


@pytest.mark.parametrize("code", ONE_SIDED.values(), ids=ONE_SIDED)
def test_what_one_rank_does_alone(code: dict[str, str], tmp_path: Path) -> None:
    assert len(findings(fit(tmp_path, **code), "FSDP501")) == 1
    assert len(findings(fit(tmp_path, "devices=4", **code), "FSDP501")) == 0
    by_module = "module." in str(code) or "module(" in str(code)
    assert len(findings(fit(tmp_path, ROOT_ONLY, **code), "FSDP501")) == (not by_module)


@pytest.mark.parametrize(("arguments", "number"), [(FSDP, 1), (ROOT_ONLY, 0), ("devices=4", 0)])
@pytest.mark.parametrize("call", ["save_pretrained('x')", "generate(batch)", "state_dict()"])
def test_a_model_of_transformers_in_the_module(
    arguments: str, number: int, call: str, tmp_path: Path
) -> None:
    made = "from transformers import AutoModel\n        self.net = AutoModel.from_pretrained('x')"
    body = f"def setup(self, stage):\n        {made}\n"
    code = f"{CALLBACK}if trainer.is_global_zero:\n        module.net.{call}"
    found = fit(tmp_path, arguments, callback=code, more=body)
    assert len(findings(found, "FSDP501")) == number


TOGETHER = {
    "nothing": {},
    "log without a reduction": {"step": f"{ON_RANK_0}self.log('loss', loss)"},
    "log of rank 0": {
        "step": f"{ON_RANK_0}self.log('loss', loss, sync_dist=True, rank_zero_only=True)"
    },
    "own log": {
        "step": f"{ON_RANK_0}self.log('loss', loss, sync_dist=True)",
        "more": "def log(self, name, value, sync_dist):\n    print(name, value)",
    },
    "log everywhere": {"step": "self.log_dict({'loss': loss}, sync_dist=True)"},
    "state": {"callback": f"{CALLBACK}module.state_dict()"},
    "norm": {"more": NORM.replace("if self.global_rank == 0", "if batch_idx")},
}


@pytest.mark.parametrize("code", TOGETHER.values(), ids=TOGETHER)
def test_what_all_ranks_do(code: dict[str, str], tmp_path: Path) -> None:
    found = fit(tmp_path, **code)
    assert not findings(found, "FSDP501")
    assert any(event.api.startswith("LightningModule.") for event in events(found, Collective)) is (
        "def log" not in str(code)
    )


def test_gradients_are_clipped_by_their_part(tmp_path: Path) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)"
    found = fit(tmp_path, more=f"def on_after_backward(self):\n    {clip}\n")
    assert list(events(found, Clipped))
    (finding,) = findings(found, "FSDP404")
    assert "strategy.model" in (finding.help or "")


OWN_DATA = """
if not torch.isfinite(loss):
    return None
"""
AGREED = """
bad = (~torch.isfinite(loss)).float()
dist.all_reduce(bad)
if bad.item():
    return None
"""


@pytest.mark.parametrize(("step", "wrong"), [(OWN_DATA, True), (AGREED, False)])
def test_a_step_without_a_loss(step: str, wrong: bool, tmp_path: Path) -> None:
    found = fit(tmp_path, step=step, sampler="torch.utils.data.DistributedSampler(rows)")
    assert bool(findings(found, "FSDP501")) is wrong
    assert not findings(fit(tmp_path, step=step), "FSDP501")


SHARDS = """
def configure_model(self):
    from torch.distributed.fsdp import fully_shard
    fully_shard(self.net, mesh=self.device_mesh["data_parallel"])
    fully_shard(self, mesh=self.device_mesh["data_parallel"])
"""


def test_a_module_shards_itself(tmp_path: Path) -> None:
    strategy = (
        "L.pytorch.strategies.ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=1)"
    )
    found = fit(tmp_path, f"devices=4, strategy={strategy}", more=SHARDS)
    assert [class_of(found, event.module) for event in events(found, Sharded)] == ["Net", "Module"]
    assert not list(events(found, Prepared))
    assert kinds(found) == [*TRAINED, *TRAINED]


@pytest.mark.parametrize(
    ("data", "more", "validates"),
    [
        ("train, train", "", True),
        ("train, val_dataloaders=train", "", True),
        ("train", "", False),
        ("train, None", "", False),
        ("train", "def val_dataloader(self):\n    return train\n", True),
        ("datamodule=Unseen()", "", True),
    ],
)
def test_a_validation_needs_data(data: str, more: str, validates: bool, tmp_path: Path) -> None:
    found = fit(tmp_path, data=data, more=more)
    assert ("validation_step" in {one.via for one in events(found, Called)}) is validates


def test_a_module_that_no_trainer_trains_has_no_such_methods(tmp_path: Path) -> None:
    code = """
class Other(nn.Module):
    def forward(self, x):
        if dist.get_rank() == 0:
            self.log("loss", x.mean(), sync_dist=True)
        return x

model = FSDP(Other())
model.module.log("loss", 1.0, sync_dist=True)
"""
    assert not list(events(program(tmp_path, code), Collective))
