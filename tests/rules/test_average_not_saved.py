"""FSDP326: averages that may be saved, and other spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

PROGRAM = Path("fixtures/rules/FSDP326/trainer.bad.py").read_text()
MAKE = "        self.ema = Average(self.model.parameters())  # <- FSDP326\n"
STATE = '            "optimizer": get_optimizer_state_dict(self.model, self.optimizer),\n'
SAVE = "        dcp.save(self.state(), checkpoint_id=FOLDER)\n"
RESUME = '        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])\n'
UPDATE = "            s.mul_(0.99).add_(p.detach(), alpha=0.01)\n"
STEP = "        self.ema.update(self.model.parameters())\n"


def found(folder: Path, *changes: tuple[str, str]) -> bool:
    program = PROGRAM
    for old, new in changes:
        assert old in program
        program = program.replace(old, new)
    path = folder / "train.py"
    path.write_text(program)
    rule = rule_by_code("FSDP326")
    assert rule is not None
    return bool(check(load([path]), [rule()]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (UPDATE, UPDATE),
        (UPDATE, "            s.lerp_(p, 1 - 0.99)\n"),
        (UPDATE, "            s.mul_(self.decay).add_(p, alpha=1 - self.decay)\n"),
        (UPDATE, "            s.lerp_(p.float(), self.weight())\n"),
        (MAKE, "        average = Average(self.model.parameters())\n        self.ema = average\n"),
        (STEP, "        if self.ema is not None:\n    " + STEP),
        ("class Trainer:", "def helper(x):\n    return x.total_states()\n\n\nclass Trainer:"),
        ("    def step(self):", "    def names(self):\n        return self.model.state_dict().keys()\n\n"
            "    def step(self):"),
    ],
)  # fmt: skip
def test_an_average_that_nothing_saves(tmp_path: Path, old: str, new: str) -> None:
    assert found(tmp_path, (old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (STATE, STATE + '            "ema": self.ema.state_dict(),\n'),
        (STATE, STATE + '            "ema": self.ema,\n'),
        (STATE, STATE + '            "ema": self.ema.kept,\n'),
        (SAVE, SAVE + '        torch.save(self.ema, "ema.pt")\n'),
        (SAVE, SAVE + '        torch.save(self.ema.state_dict(), "ema.pt")\n'),
        (SAVE, SAVE + '        torch.save(vars(self)["ema"].kept, "ema.pt")\n        keep(self.ema)\n'),
        (SAVE, SAVE + "        for part in self.parts: torch.save(part.state_dict(), part.name)\n"),
        (SAVE, SAVE + '        torch.save(getattr(self.ema, "state_dict")(), "ema.pt")\n'),
        (MAKE, MAKE + "        self.parts = [self.ema]\n"),
        (MAKE, MAKE + "        accelerator.register_for_checkpointing(self.ema)\n"),
        (MAKE, MAKE + '        self.states = {"ema": self.ema}\n'),
        ("    def copy_to", "    def save(self):\n        torch.save(self.state_dict(), 'ema.pt')\n\n"
            "    def copy_to"),
        # no class with a state, no resumed training, no optimizer that is restored
        ("    def load_state_dict(self, state):\n        self.kept = state[\"kept\"]\n", ""),
        ("second.resume()\n", ""),
        ("second.step()\n", ""),
        (SAVE, "        pass\n"),
        (STEP, ""),
    ],
)  # fmt: skip
def test_an_average_that_may_be_saved_or_is_not_resumed(tmp_path: Path, old: str, new: str) -> None:
    assert not found(tmp_path, (old, new))


def test_a_checkpoint_of_the_model_alone(tmp_path: Path) -> None:
    assert not found(tmp_path, (STATE, ""), (RESUME, ""))
