"""Optimizers whose kernels do not take FSDP2's parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

REFUSED = {
    "an attribute of the library": (
        "import bitsandbytes as bnb\nmodel = FSDP(Net())\n"
        "optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-3)\n"
    ),
    "an imported class, with groups": (
        "from bitsandbytes.optim import PagedLion8bit as Lion\nmodel = FSDP(Net())\n"
        'optimizer = Lion([{"params": model.parameters(), "lr": 1e-3}])\n'
    ),
    "32 bits": (
        "from bitsandbytes import optim\nmodel = FSDP(Net())\n"
        "optimizer = optim.AdamW(model.parameters())\n"
    ),
    "a choice": (
        "import bitsandbytes as bnb\nmodel = FSDP(Net())\n"
        'if os.environ.get("SMALL"):\n    kind = bnb.optim.Adam8bit\nelse:\n    kind = torch.optim.Adam\n'
        "optimizer = kind(model.parameters())\n"
    ),
    "a name": (
        "import bitsandbytes as bnb\nmodel = FSDP(Net())\n"
        'optimizer = getattr(bnb.optim, "Lion8bit")(model.parameters())\n'
    ),
    "a function": (
        "def build(params, small):\n    if small:\n        import bitsandbytes as bnb\n\n"
        "        return bnb.optim.AdamW8bit(params, lr=1e-3)\n    return torch.optim.AdamW(params)\n\n\n"
        'model = FSDP(Net())\noptimizer = build(model.parameters(), "SMALL" in os.environ)\n'
    ),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_an_optimizer_that_refuses_dtensors_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body)
    assert [one.code for one in found.blockers] == ["FSDP299-kernel-optimizer"]


TAKEN = {
    "of another model": (
        "import bitsandbytes as bnb\nmodel = FSDP(Net())\nother = Net()\n"
        "optimizer = bnb.optim.AdamW8bit(other.parameters())\n"
    ),
    "another library": (
        "from torchao.optim import AdamW8bit\nmodel = FSDP(Net())\n"
        "optimizer = AdamW8bit(model.parameters())\n"
    ),
}


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN)
def test_another_optimizer_does_not_block(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body)
    assert not found.blockers
