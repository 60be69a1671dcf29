"""FSDP323: which context managers leave other weights in a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_kept_weights import HEAD

from fsdplint.diagnostics.finding import Finding
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

FUNCTION = """
@contextmanager
def averaged():
    write(average)
    yield

def validate():
    with averaged():
        return evaluate()

train()
validate()
train()
"""
METHOD = """
class Average:
    def __init__(self, net):
        self.net = net

    @contextmanager
    def swapped(self):
        self.put(average)
        try:
            yield self.net
        finally:
            self.net.train()

    @torch.no_grad()
    def put(self, values):
        for n, p in self.net.named_parameters():
            p.data.copy_(values[n])

ema = Average(model)
for epoch in range(3):
    train()
    with ema.swapped() as net, torch.no_grad():
        net(torch.ones(2, 4))
"""
CLASS = """
class Averaged:
    def __enter__(self):
        write(average)

    def __exit__(self, *error):
        pass

for epoch in range(3):
    train()
    with Averaged():
        evaluate()
"""
KEPT = "kept = {n: p.detach().clone() for n, p in model.named_parameters()}\n    write(average)"


def findings(folder: Path, body: str) -> list[Finding]:
    file = folder / "train.py"
    file.write_text(HEAD + body)
    (folder / "pyproject.toml").touch()
    rule = rule_by_code("FSDP323")
    assert rule is not None
    return check(load([file]), [rule()])


@pytest.mark.parametrize(
    "body",
    [
        FUNCTION,
        FUNCTION.replace("yield", "model.eval()\n    yield model\n    model.train()"),
        FUNCTION.replace("    yield", "    with torch.no_grad():\n        yield"),
        FUNCTION.replace("write(average)", "model.load_state_dict(average)"),
        FUNCTION.replace("write(average)", "set_model_state_dict(model, average)"),
        FUNCTION.replace("write(average)", KEPT),
        FUNCTION.replace("return evaluate()", "value = evaluate()\n    return value"),
        METHOD,
        METHOD.replace("            self.net.train()", "            pass"),
        METHOD.replace("p.data.copy_(values[n])", "p.copy_(values[n])"),
        CLASS,
        CLASS.replace("pass", "return False"),
    ],
)
def test_weights_that_stay_are_found(tmp_path: Path, body: str) -> None:
    assert len(findings(tmp_path, body)) == 1


@pytest.mark.parametrize(
    "body",
    [
        FUNCTION.replace("write(average)", KEPT).replace("yield", "yield\n    write(kept)"),
        FUNCTION.replace("write(average)", KEPT).replace(
            "    yield", "    try:\n        yield\n    finally:\n        write(kept)"
        ),
        FUNCTION.replace("yield", "yield\n    from elsewhere import undo\n    undo()"),
        # the weights are put back after the block, or the model does not train with them
        FUNCTION.replace("validate()\ntrain()", "validate()\nwrite({})\ntrain()"),
        FUNCTION.replace("validate()\ntrain()", "validate()"),
        # the block trains with the weights that it gets
        FUNCTION.replace("return evaluate()", "train()"),
        FUNCTION.replace("return evaluate()", "pass"),
        # nothing sets all weights
        FUNCTION.replace("write(average)", "model.eval()"),
        FUNCTION.replace("write(average)", "model[0].bias.data.zero_()"),
        # a function that resets the model to the average
        FUNCTION.replace("with averaged():\n        return", "write(average)\n    return"),
        CLASS.replace("pass", "write(self.kept)"),
        CLASS.replace("pass", "self.restore()"),
        METHOD.replace("self.net.train()", "self.put(self.kept)"),
        # another model is evaluated
        "other = nn.Linear(4, 1)\n" + FUNCTION.replace("return evaluate()", "other(torch.ones(2, 4))"),
    ],
)  # fmt: skip
def test_weights_that_may_be_put_back_are_not_reported(tmp_path: Path, body: str) -> None:
    assert findings(tmp_path, body) == []
