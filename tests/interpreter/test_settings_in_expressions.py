"""Settings that an expression combines, and texts that differ from turn to turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import OptimizerBuilt, Sharded, Trace


def built(trace: Trace) -> list[str]:
    return sorted(event.class_name for event in trace.of(OptimizerBuilt))


@pytest.mark.parametrize("expression", ["config.one or config.two", "config.one and config.two"])
def test_a_combination_of_settings_agrees_with_them(tmp_path: Path, expression: str) -> None:
    found = program(
        tmp_path,
        f"""
        from settings import load

        config = load()
        either = {expression}
        model = Net()
        fully_shard(model)
        torch.optim.SGD(model.parameters())
        if either:
            torch.optim.AdamW(model.parameters())
        if config.one:
            fully_shard(Net())
        if config.two:
            fully_shard(Net())
        """,
    )
    seen = set()
    for trace in found.traces:
        one, two = trace.decisions["settings.load().one"], trace.decisions["settings.load().two"]
        holds = (one or two) if " or " in expression else (one and two)
        seen.add(holds)
        assert built(trace) == (["AdamW", "SGD"] if holds else ["SGD"])
    assert seen == {True, False}


def test_a_backend_that_one_of_two_settings_needs(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import torch.distributed.checkpoint as dcp
        from settings import load


        def backend(kind, offload):
            name = "nccl"
            if offload:
                name = f"{kind}:{name},cpu:gloo"
            return name


        config = load()
        dist.init_process_group(backend(config.kind, config.offload or config.saves_async))
        model = Net()
        fully_shard(model)
        if config.saves_async:
            dcp.async_save({"model": model.state_dict()}, checkpoint_id="x")
        """,
    )
    assert not findings(found, "FSDP312")


NAMES = """
from functools import partial
from settings import make, names


def is_unit(name, module, names=None):
    if names and name in names:
        return True
    parts = name.split(".")
    if len(parts) >= 2:
        return parts[-2] == "layers" and str.isdigit(parts[-1])
    return False


def shard(model, tests):
    number = 0
    for name, module in {order}:
        if any([test(name, module) for test in tests]):
            fully_shard(module)
            number += 1
    if number == 0:
        raise ValueError("no unit")
    fully_shard(model)


model = make()
shard(model, [partial(is_unit, names=names())])
torch.optim.AdamW(model.parameters())
"""


@pytest.mark.parametrize(
    "order", ["model.named_modules()", "reversed(list(model.named_modules()))"]
)
def test_units_of_an_unknown_model_that_a_function_tells_by_their_names(
    tmp_path: Path, order: str
) -> None:
    found = program(tmp_path, NAMES.format(order=order))
    assert list(events(found, Sharded)) and list(events(found, OptimizerBuilt))


def test_the_length_of_a_text_of_a_loop_is_no_setting(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        from settings import names

        model = Net()
        for name in names():
            if len(name.split(".")) > 1:
                fully_shard(model)
        """,
    )
    assert len(found.traces) == 1 and not found.traces[0].decisions
