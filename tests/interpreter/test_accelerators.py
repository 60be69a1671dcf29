"""Whether the machine has accelerators: a run has them, unless that is what it is to show."""

from __future__ import annotations

import pytest

from fsdplint.interpreter.configurations import Decisions
from fsdplint.interpreter.values import Condition

KEYS = ["torch.cuda.is_available()", "torch.accelerator.is_available()"]


@pytest.mark.parametrize("key", KEYS)
def test_runs_have_accelerators(key: str) -> None:
    test = Condition(key, key, subject=key, relation="truth")
    assert Decisions(base=True).decide(test)
    assert Decisions(base=False).decide(test)
    assert Decisions(base=False, preferred={key: False}).decide(test)


@pytest.mark.parametrize("key", KEYS)
def test_a_run_for_machines_without(key: str) -> None:
    test = Condition(key, key, subject=key, relation="truth")
    assert not Decisions(forced=((test, False),)).decide(test)
    assert not Decisions(preferred={key: False}, fixed={key}).decide(test)
