"""The backward pass of a loss of which nothing is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, program

from fsdplint.trace import BackwardRun

LOSSES = [
    'terms["loss"].sum() / terms.size',
    "unknown().terms[unknown()][0] * 2",
    "sum(one.mean() for one in unknown())",
    "-(unknown() @ unknown())",
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_without_a_known_origin(tmp_path: Path, loss: str) -> None:
    body = f"""\
        model = fully_shard(Net())
        terms = unknown(model)
        loss = {loss}
        loss.backward()
        """
    assert len(list(events(program(tmp_path, body), BackwardRun))) == 1
