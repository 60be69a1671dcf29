"""Which parameters the groups of FSDP2 have, where parts of a model are not known."""

from __future__ import annotations

import pytest

from fsdplint.trace import Module, Sharded, Trace
from fsdplint.trace.groups import Groups

TRANSFORMERS = "transformers.AutoModel"


def groups(*sharded: str, library: str | None = None, block: bool = True) -> Groups:
    """A model with two parts of unknown classes, of which some modules are sharded."""
    trace = Trace(producer="static")
    trace.modules = {
        "model": Module(
            "model",
            "Model",
            library,
            children={"block": "block", "loss": "loss"},
            children_known=False,
        ),
        "block": Module("block", "block", children_known=False, block=block),
        "loss": Module("loss", "loss", children_known=False),
    }
    for module in sharded:
        trace.add(Sharded(site=None, module=module))
    return Groups(trace)


def test_a_unit_has_the_parameters_of_its_parts() -> None:
    assert groups("model").holds_parameters("model")
    assert groups("block", "model").holds_parameters("block")


def test_a_part_of_a_unit_may_have_no_parameters() -> None:
    assert not groups("model").holds_parameters("loss")


@pytest.mark.parametrize(
    ("library", "block", "holds"), [(TRANSFORMERS, True, True), (TRANSFORMERS, False, False),
                                    (None, True, False)],
)  # fmt: skip
def test_a_model_of_transformers_has_an_embedding_beside_its_blocks(
    library: str | None, block: bool, holds: bool
) -> None:
    made = groups("block", "model", library=library, block=block)
    assert made.holds_parameters("model") is holds
