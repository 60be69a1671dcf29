"""The model of an optimizer whose state a method takes, where only other methods name the model."""

from __future__ import annotations

from pathlib import Path

from forms import migrated, plan

TRAINER = """
class Trainer:
    def __init__(self):
        self.model = FSDP(Net())
        self.ema = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, x):
        self.model(x).sum().backward()
        self.optimizer.step()
        {0}

    def checkpoint(self):
        return {"optimizer": self.optimizer.state_dict()}

    def save(self):
        state = self.checkpoint()
        if dist.get_rank() == 0:
            torch.save(state, "optimizer.pt")


trainer = Trainer()
trainer.step(torch.zeros(8))
trainer.save()
"""


def test_an_attribute_that_other_methods_read(tmp_path: Path) -> None:
    text = migrated(tmp_path, TRAINER.replace("{0}", "pass"))
    assert "get_optimizer_state_dict(\n" in text and "self.model,\n" in text


def test_an_attribute_that_holds_several_models(tmp_path: Path) -> None:
    other = 'self.model = self.ema if "EMA" in os.environ else self.model'
    found, _ = plan(tmp_path, TRAINER.replace("{0}", other))
    assert found.blockers


def test_an_attribute_that_unreached_code_sets(tmp_path: Path) -> None:
    other = "pass\n\n    def swap(self):\n        self.model = self.ema"
    found, _ = plan(tmp_path, TRAINER.replace("{0}", other))
    assert found.blockers
    elsewhere = TRAINER.replace("{0}", "pass") + "trainer.model = trainer.ema\ntrainer.save()\n"
    found, _ = plan(tmp_path, elsewhere)
    assert found.blockers
