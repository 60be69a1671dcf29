"""Gradients of tensors that a function makes: no model holds these tensors."""

from __future__ import annotations

from pathlib import Path

from forms import migrated, plan

PART = ["FSDP299-gradient-part"]

INVERSION = """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

    def invert(self, target):
        start = nn.Parameter(torch.zeros(8))
        optimizer = torch.optim.LBFGS([start])

        def loss_of(hidden):
            {0}
            return (self(hidden) - self.linear(hidden) - target).square().mean()

        def closure():
            optimizer.zero_grad()
            loss = loss_of(start)
            loss.backward()
            return loss

        optimizer.step(closure)
        return start.grad.norm()


model = FSDP(Net())
head = Head()
print(head.invert(torch.zeros(8)))
"""

ACTIVATION = """
from transformers import AutoModel


def sensitivity(model, tokens):
    embedding = model.embedding
    with torch.no_grad():
        raw = {0}
    inputs = raw.detach(){1}
    model(inputs).sum().backward()
    return inputs.grad.detach().norm(dim=-1)


model = FSDP(AutoModel.from_pretrained("gpt2"))
print(sensitivity(model, torch.zeros(8, dtype=torch.long)))
"""


def test_a_tensor_that_a_function_of_the_function_gets(tmp_path: Path) -> None:
    body = INVERSION.replace("{0}", "pass")
    assert "start.grad.norm()" in migrated(tmp_path, body)


def test_a_tensor_that_a_function_of_the_function_keeps(tmp_path: Path) -> None:
    body = INVERSION.replace("{0}", "self.linear.bias = hidden")
    found, _ = plan(tmp_path, body)
    assert [one.blocker.code for one in found.blockers] == PART


def test_a_detached_result_that_requires_gradients(tmp_path: Path) -> None:
    for made in ("embedding(tokens)", "model.embedding(tokens).float()"):
        body = ACTIVATION.replace("{0}", made).replace("{1}", ".requires_grad_(True)")
        assert "inputs.grad.detach()" in migrated(tmp_path, body)


def test_a_detached_parameter_is_a_part_of_a_model(tmp_path: Path) -> None:
    for made in ('getattr(model, "embedding")', "model.embedding"):
        body = ACTIVATION.replace("{0}", made).replace("{1}", ".requires_grad_(True)")
        found, _ = plan(tmp_path, body)
        assert [one.blocker.code for one in found.blockers] == PART, made
    made = "next(model.parameters())"
    body = ACTIVATION.replace("{0}", made).replace("{1}", ".requires_grad_(True)")
    found, text = plan(tmp_path, body)
    assert not found.blockers and "inputs.grad.to_local().detach().norm(dim=-1)" in text


def test_a_result_that_is_not_detached_may_be_a_parameter(tmp_path: Path) -> None:
    body = ACTIVATION.replace("{0}", "embedding(tokens)").replace("raw.detach(){1}", "raw")
    found, _ = plan(tmp_path, body)
    assert [one.blocker.code for one in found.blockers] == PART
