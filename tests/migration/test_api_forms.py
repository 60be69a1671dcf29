"""Methods that are called on FSDP1's class, and questions about its API."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan, refusals

from fsdplint.migration.direct_form.api_questions import METHODS
from fsdplint.migration.names import PARAMETERS

STATE = """
state = get_optimizer_state_dict(
    net, optimizer, options=StateDictOptions(full_state_dict=True)
)
"""
SETUP = "net = FSDP(Net())\noptimizer = torch.optim.AdamW(net.parameters())\n"
FORMS = {
    "methods of the class": (
        SETUP
        + """
        net(torch.ones(2, 8)).sum().backward()
        FSDP.clip_grad_norm_(net, max_norm=2.0)
        with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT):
            weights = FSDP.state_dict(net)
        """,
        """
        net(torch.ones(2, 8)).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=2.0)
        weights = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        """,
    ),
    "the class as a test": (
        SETUP
        + """
        if not FSDP:
            state = FSDP.full_optim_state_dict(net, optimizer)
        else:
            state = FSDP.optim_state_dict(net, optimizer)
        """,
        STATE,
    ),
    "a choice by a method": (
        SETUP
        + """
        if not hasattr(FSDP, "optim_state_dict"):
            state = FSDP.full_optim_state_dict(net, optimizer)
        else:
            state = FSDP.optim_state_dict(net, optimizer)
        """,
        STATE,
    ),
    "one of three choices": (
        SETUP
        + """
        from inspect import signature

        if "fused" in signature(FSDP.optim_state_dict).parameters:
            state = FSDP.optim_state_dict(net, optimizer, fused=True)
        elif os.environ.get("NONE"):
            state = None
        else:
            state = FSDP.optim_state_dict(net, optimizer)
        """,
        """
        if os.environ.get("NONE"):
            state = None
        else:
            state = get_optimizer_state_dict(
                net, optimizer, options=StateDictOptions(full_state_dict=True)
            )
        """,
    ),
    "an argument by its name in a signature": (
        """
        import inspect

        given = {}
        if "use_orig_params" in inspect.signature(FSDP.__init__).parameters:
            given["use_orig_params"] = True
        net = FSDP(Net(), **given)
        """,
        """
        net = fully_shard(Net())
        """,
    ),
    "an answer with a name": (
        SETUP
        + """
        import inspect

        HAS_CONFIG = "config" in inspect.signature(FSDP.optim_state_dict).parameters.keys()
        given = dict(config=None) if HAS_CONFIG and torch.cuda.is_available() else {}
        state = FSDP.optim_state_dict(net, optimizer, **given)
        """,
        "HAS_CONFIG = False" + STATE,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_becomes(name: str, tmp_path: Path) -> None:
    before, after = (textwrap.dedent(one) for one in FORMS[name])
    if before.startswith(SETUP):
        before = SETUP + textwrap.dedent(before.removeprefix(SETUP))
    text = migrated(tmp_path, before)
    assert text.strip().endswith(textwrap.dedent(after).strip()), text
    assert not refusals(tmp_path, before)


def test_a_method_that_the_class_may_not_have_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, "net = FSDP(Net())\nif hasattr(FSDP, 'gather'):\n    print(net)\n")
    assert found.blockers


def test_the_signatures_are_those_of_torch() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    assert tuple(inspect.signature(FSDP).parameters) == PARAMETERS
    for name, parameters in METHODS.items():
        assert tuple(inspect.signature(getattr(FSDP, name)).parameters) == parameters, name
