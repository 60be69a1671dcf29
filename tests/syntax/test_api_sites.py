"""Which calls are sites of the API of FSDP and of what its contract is about."""

from __future__ import annotations

import pytest

from fsdplint.source.source import Source
from fsdplint.syntax.api_sites import SiteKind, sites_in


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("torch.optim.AdamW(p)", SiteKind.OPTIMIZER),
        ("torch.optim.Adagrad(p)", SiteKind.OPTIMIZER),
        ("Adafactor(p)", SiteKind.OPTIMIZER),
        ("FusedAdam(p)", SiteKind.OPTIMIZER),
        ("Adan(p)", SiteKind.OPTIMIZER),
        ("Muon(p)", SiteKind.OPTIMIZER),
        ("AdapterConfig(p)", None),
        ("AdaLayerNorm(p)", None),
        ("torch.nn.AdaptiveAvgPool2d(1)", None),
        ("AdamConfig(lr=1)", None),
        ("optimizer.step()", SiteKind.STEP),
        ("lr_scheduler.step()", None),
    ],
)
def test_the_kind_of_a_call(call: str, kind: SiteKind | None) -> None:
    found = [site.kind for site in sites_in(Source("train.py", f"import torch\n{call}\n"))]
    assert found == ([kind] if kind is not None else [])
