"""Ignored modules whose own constructor makes nothing but parameters without gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import plan

CLASS = """
class Table(nn.Module):
    def __init__(self, dim, rows=4):
        super().__init__()
        self.dim = dim
        {first}
        {second}

    def forward(self, x):
        return x


class Whole(Net):
    def __init__(self):
        super().__init__()
        self.table = Table(8)


net = Whole()
{after}
model = FSDP(net, ignored_modules=[m for m in net.modules() if isinstance(m, Table)])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
model(torch.ones(2, 8)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
"""
TABLE = "self.table = nn.Parameter(torch.randn(rows, dim), requires_grad=False)"
FROZEN = {
    "one parameter": ("", ""),
    "several": (
        'self.register_parameter("bias", nn.Parameter(torch.zeros(dim), requires_grad=False))',
        "",
    ),
    "a part without parameters": ("self.act = nn.GELU()", ""),
    "a part that is frozen": ("self.proj = nn.Linear(dim, dim).requires_grad_(False)", ""),
    "a buffer": ('self.register_buffer("scale", torch.ones(dim))', ""),
    "a flag by its position": ("self.bias = nn.Parameter(torch.zeros(dim), False)", ""),
    "the module": (
        "self.bias = nn.Parameter(torch.zeros(dim))\n        self.requires_grad_(False)",
        "",
    ),
    "each parameter": (
        "self.bias = nn.Parameter(torch.zeros(dim))\n"
        "        for p in self.parameters():\n            p.requires_grad = False",
        "",
    ),
    "a buffer and each parameter": (
        'self.register_buffer("scale", torch.ones(dim))\n'
        "        self.bias = nn.Parameter(torch.zeros(dim))\n"
        "        for p in self.parameters():\n            p.requires_grad_(False)",
        "",
    ),
    "more values": ("self.sizes = (dim, rows)", "net.table.extra = 3"),
}
TRAINED = {
    "a parameter after the others": (
        "self.requires_grad_(False)\n        self.bias = nn.Parameter(torch.zeros(dim))",
        "",
    ),
    "some parameters": (
        "self.bias = nn.Parameter(torch.zeros(dim))\n"
        "        for n, p in self.named_parameters():\n"
        "            if 'table' in n:\n                p.requires_grad = False",
        "",
    ),
    "a flag by its position, that is not known": (
        "self.bias = nn.Parameter(torch.zeros(dim), bool(os.environ.get('LEARN')))",
        "",
    ),
    "a parameter in the place of a buffer": (
        'self.register_buffer("scale", None)\n        self.scale = nn.Parameter(torch.ones(dim))',
        "",
    ),
    "one of two": ("self.bias = nn.Parameter(torch.zeros(dim))", ""),
    "a part": ("self.proj = nn.Linear(dim, dim)", ""),
    "a registered parameter": (
        'self.register_parameter("bias", nn.Parameter(torch.zeros(dim)))',
        "",
    ),
    "names that are not known": (
        "for name in os.environ:\n            self.register_parameter(name, nn.Parameter(torch.zeros(dim)))",
        "",
    ),
    "attributes that are not known": (
        "for name in os.environ:\n            setattr(self, name, nn.Parameter(torch.zeros(dim)))",
        "",
    ),
    "a condition": (
        'if os.environ.get("LEARN"):\n            self.bias = nn.Parameter(torch.zeros(dim))',
        "",
    ),
    "a flag": (
        'self.bias = nn.Parameter(torch.zeros(dim), requires_grad="LEARN" in os.environ)',
        "",
    ),
    "a value of another library": ("import layers\n        self.bias = layers.bias(dim)", ""),
    "the same parameter, set": ("self.table.requires_grad = True", ""),
    "the same parameter, set by a method": ("self.table.requires_grad_()", ""),
    "all parameters": ("self.requires_grad_(True)", ""),
    "another constructor": ("layers_init(self)", ""),
    "later, the model": ("", "net.requires_grad_(True)"),
    "later, each parameter": ("", "for p in net.parameters():\n    p.requires_grad = True"),
    "later, the parameter": ("", "net.table.table.requires_grad_(True)"),
    "later, its attribute": ("", "net.table.table.requires_grad = True"),
    "later, another parameter": ("", "net.table.bias = nn.Parameter(torch.zeros(8))"),
    "later, a parameter of a part": ("", "net.table.bias = net.blocks[0].linear.bias"),
    "later, a registered parameter": (
        "",
        'net.table.register_parameter("bias", nn.Parameter(torch.zeros(8)))',
    ),
    "later, a part": ("", "net.table.part = nn.Linear(8, 8)"),
}


@pytest.mark.parametrize(("second", "after"), list(FROZEN.values()), ids=list(FROZEN))
def test_a_module_that_is_made_frozen(second: str, after: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, CLASS.format(first=TABLE, second=second, after=after))
    assert not found.blockers, [one.reason for one in found.blockers]
    assert "ignored_params={p for" in "".join(text.splitlines()).replace("    ", "")


@pytest.mark.parametrize(("second", "after"), list(TRAINED.values()), ids=list(TRAINED))
def test_a_module_that_may_be_trained(second: str, after: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, CLASS.format(first=TABLE, second=second, after=after))
    assert any("ignored_modules" in one.reason for one in found.blockers)
