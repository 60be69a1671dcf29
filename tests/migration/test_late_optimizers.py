"""Optimizers that are built after a forward without a backward."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, refusals

RESHARD = "# A forward without a backward leaves parameters gathered.\nmodel.reshard()\n"
PROGRAM = """
model = WRAPPED
with torch.no_grad():
    print(model(torch.randn(4, 8)).sum())
BETWEEN
optimizer = torch.optim.AdamW(GIVEN, lr=0.1)
for _ in range(4):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def program(
    given: str = "model.parameters()", between: str = "pass", wrapped: str = "FSDP(Net())"
) -> str:
    body = PROGRAM.replace("WRAPPED", wrapped)
    return body.replace("GIVEN", given).replace("BETWEEN", between)


@pytest.mark.parametrize(
    "given",
    [
        "model.parameters()",
        "[p for p in model.parameters() if p.requires_grad]",
        '[{"params": [p for n, p in model.named_parameters() if "bias" in n], "weight_decay": 0.0},'
        ' {"params": [p for n, p in model.named_parameters() if "bias" not in n]}]',
    ],
)
def test_the_model_is_sharded_again(given: str, tmp_path: Path) -> None:
    # Flat parameters have no names of their own to choose groups by.
    by_name = "named_parameters" in given
    wrapped = "FSDP(Net(), use_orig_params=True)" if by_name else "FSDP(Net())"
    body = program(given, wrapped=wrapped)
    assert RESHARD + "optimizer = " in migrated(tmp_path, body)
    assert refusals(tmp_path, body) == set()


@pytest.mark.parametrize(
    "between",
    ["model(torch.randn(4, 8)).sum().backward()", "model.state_dict()"],
)
def test_it_is_sharded_already(between: str, tmp_path: Path) -> None:
    assert "reshard()" not in migrated(tmp_path, program(between=between))


METHOD = """
class Blocks(Net):
    @torch.no_grad()
    def use(self, x=None):
        return BODY


model = FSDP(Blocks())
print(model.use(torch.randn(4, 8)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("body", "gathers"),
    [("list(self.blocks)", False), ("self(x)", True), ("eval_library.run(self, x)", True)],
)
def test_a_method_that_may_compute(body: str, gathers: bool, tmp_path: Path) -> None:
    imported = "import eval_library\n" if "library" in body else ""
    text = migrated(tmp_path, imported + METHOD.replace("BODY", body))
    assert ("reshard()" in text) is gathers


def test_one_loop_for_an_optimizer_and_its_state(tmp_path: Path) -> None:
    more = "\nstate = FSDP.optim_state_dict(model, optimizer)\n"
    text = migrated(tmp_path, program().split("for _ in range")[0] + more)
    assert text.count("reshard()") == 1


def test_in_a_function_that_gets_the_model(tmp_path: Path) -> None:
    body = """
def build(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


model = FSDP(Net())
with torch.no_grad():
    print(model(torch.randn(4, 8)).sum())
optimizer = build(model)
for _ in range(4):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""
    assert "    net.reshard()\n    return torch.optim.SGD" in migrated(tmp_path, body)
    assert refusals(tmp_path, body) == set()
