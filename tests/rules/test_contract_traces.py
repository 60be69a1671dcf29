"""FSDP101 to FSDP107 on traces made by hand: what the examples' programs cannot show or cannot pin down."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from fsdplint.diagnostics.finding import Finding
from fsdplint.registry.rules import rule_by_code
from fsdplint.trace import (
    BackwardRun,
    Called,
    Collective,
    Escaped,
    Event,
    FixedSite,
    Gathered,
    Location,
    Module,
    ModuleCopied,
    OptimizerBuilt,
    OptimizerStepped,
    Sharded,
    Trace,
    Wrapped,
)

E = TypeVar("E", bound=Event)


class Story:
    """A trace whose events stand on lines 1, 2, 3, ... unless another line is given.

    The model "net" holds two blocks with a linear layer each, and a head.
    """

    def __init__(self, *, complete: bool = True) -> None:
        self.trace = Trace(producer="runtime", complete=complete)
        self.module("net", "Net", layers="layers", head="head")
        self.module("layers", "ModuleList", container=True, **{"0": "b0", "1": "b1"})
        for name in ("b0", "b1"):
            self.module(name, "Block", linear=f"{name}.linear")
            self.linear(f"{name}.linear")
        self.linear("head")

    def module(self, name: str, class_name: str, container: bool = False, **children: str) -> None:
        self.trace.modules[name] = Module(
            name, class_name, children=children, own_parameters=False, container=container
        )

    def linear(self, name: str) -> None:
        self.trace.modules[name] = Module(
            name, "Linear", qualified_class="torch.nn.Linear", own_parameters=True
        )

    def add(self, kind: type[E], *, line: int | None = None, **fields: Any) -> E:
        number = len(self.trace.events) + 1 if line is None else line
        return self.trace.add(kind(site=FixedSite(Location("train.py", number)), **fields))

    def shard(self, *modules: str) -> None:
        for module in modules:
            self.add(Sharded, module=module)

    def train(self, over: tuple[str, ...] = ("net",)) -> None:
        self.add(OptimizerBuilt, optimizer="o", class_name="AdamW", modules=over)
        self.add(Called, module="net")
        self.add(BackwardRun)
        self.add(OptimizerStepped, optimizer="o")

    def findings(self, code: str) -> list[Finding]:
        rule = rule_by_code(code)
        assert rule is not None
        return list(rule().check(self.trace))

    def lines(self, code: str) -> list[int]:
        return [finding.site.location().line for finding in self.findings(code)]


def test_a_call_in_a_loop_is_one_finding() -> None:
    story = Story()
    story.shard("net")
    for _ in range(3):
        story.add(Called, module="net", via="forward", line=7)
    assert story.lines("FSDP101") == [7]


def test_forward_within_a_direct_forward_is_part_of_it() -> None:
    story = Story()
    story.shard("net")
    outer = story.add(Called, module="net", via="forward")
    story.add(Called, module="head", via="forward", inside=outer.index)
    assert story.lines("FSDP101") == [2]


def test_forward_of_a_module_with_no_sharding_above_it() -> None:
    story = Story()
    story.shard("b0")
    story.add(Called, module="head", via="forward")
    story.add(Called, module="net", via="forward")
    assert story.lines("FSDP101") == []


@pytest.mark.parametrize(("module", "found"), [("net", False), ("b0", True)])
def test_gathering_a_parent_does_not_gather_its_children(module: str, found: bool) -> None:
    story = Story()
    story.shard("b0", "net")
    story.add(Gathered, module=module, gathered=True)
    story.add(Called, module="head", via="forward")
    assert bool(story.lines("FSDP101")) is found


def test_a_method_that_enters_another_unit_is_not_mended_by_registering_it() -> None:
    story = Story()
    story.shard("b0", "b1", "net")
    story.add(Called, module="net")
    method = story.add(Called, module="net", via="score")
    story.add(Called, module="b0.linear", inside=method.index)
    assert story.lines("FSDP102") == []


def test_a_method_of_a_sharded_part_within_a_call_of_the_root() -> None:
    story = Story()
    story.shard("b0", "net")
    call = story.add(Called, module="net")
    method = story.add(Called, module="b0", via="scores", inside=call.index)
    story.add(Called, module="b0.linear", inside=method.index)
    assert story.lines("FSDP102") == [4]


@pytest.mark.parametrize("via", ["reset_parameters", "forward"])
def test_a_method_of_a_part_may_initialise_it(via: str) -> None:
    story = Story()
    story.shard("net")
    outer = story.add(Called, module="net", via="init_weights")
    story.add(Called, module="head", via=via, inside=outer.index)
    assert story.lines("FSDP102") == ([2] if via == "forward" else [])


def test_only_the_outermost_method_is_found() -> None:
    story = Story()
    story.shard("net")
    outer = story.add(Called, module="net", via="generate")
    inner = story.add(Called, module="net", via="step", inside=outer.index)
    story.add(Called, module="head", inside=inner.index)
    assert story.lines("FSDP102") == [2]


def test_an_optimizer_over_ignored_parameters() -> None:
    story = Story()
    story.add(OptimizerBuilt, optimizer="o", modules=("head",))
    story.add(Sharded, module="net", options={"ignored_params": "?"})
    story.add(OptimizerStepped, optimizer="o")
    assert story.lines("FSDP103") == []


@pytest.mark.parametrize("stepped", [True, False])
def test_an_optimizer_that_is_not_stepped_any_more(stepped: bool) -> None:
    story = Story()
    story.add(OptimizerBuilt, optimizer="o", modules=("net",))
    story.add(OptimizerStepped, optimizer="o")
    story.shard("net")
    story.add(OptimizerBuilt, optimizer="p", modules=("net",))
    story.add(OptimizerStepped, optimizer="o" if stepped else "p")
    assert story.lines("FSDP103") == ([1] if stepped else [])


def test_the_optimizer_of_a_unit_when_the_unit_s_parent_is_wrapped() -> None:
    story = Story()
    story.trace.modules["w0"] = Module("w0", "FSDP", wrapper="fsdp1", inner="b0")
    story.trace.modules["w"] = Module("w", "FSDP", wrapper="fsdp1", inner="net")
    story.trace.modules["layers"].children["0"] = "w0"
    story.add(Wrapped, module="w0", inner="b0")
    story.add(OptimizerBuilt, optimizer="o", modules=("b0",))
    story.add(Wrapped, module="w", inner="net")
    story.add(OptimizerStepped, optimizer="o")
    assert story.lines("FSDP103") == []


def test_torch_s_own_transformer_layers_are_blocks() -> None:
    story = Story()
    for name in ("b0", "b1"):
        story.trace.modules[name].class_name = "TransformerEncoderLayer"
        story.trace.modules[name].qualified_class = "torch.nn.TransformerEncoderLayer"
    story.shard("net")
    assert story.lines("FSDP104") == [1]


def test_a_list_of_torch_s_plain_layers_is_none_of_blocks() -> None:
    story = Story()
    story.trace.modules["layers"].children = {"0": "b0.linear", "1": "b1.linear"}
    story.shard("net")
    assert story.lines("FSDP104") == []


def _story(unknown: str) -> Story:
    story = Story(complete=unknown != "trace")
    story.trace.modules["head"].children_known = unknown != "children"
    if unknown == "escaped":
        story.add(Escaped, module="b1")
    return story


@pytest.mark.parametrize("unknown", ["escaped", "children", "trace"])
def test_what_is_missing_is_only_missed_where_all_is_known(unknown: str) -> None:
    story = _story(unknown)
    story.shard("net")
    story.train()
    assert story.lines("FSDP104") == []
    story = _story(unknown)
    story.shard("b0", "b1")
    story.train()
    assert story.lines("FSDP105") == []


def test_code_that_gets_the_model_after_the_training_hides_nothing() -> None:
    story = Story()
    story.shard("net")
    story.train()
    story.add(Escaped, module="b1")
    assert story.lines("FSDP104") == [1]
    story = Story()
    story.shard("b0", "b1")
    story.train()
    story.add(Escaped, module="b1")
    assert story.lines("FSDP105") == [2]


def test_the_message_names_what_is_left_over() -> None:
    story = Story()
    story.shard("b0")
    story.train()
    (finding,) = story.findings("FSDP105")
    assert finding.site.location().line == 1
    assert "`layers.1.linear` and `head`" in finding.message


@pytest.mark.parametrize("change", ["frozen", "ddp", "not optimized", "reduced", "root later"])
def test_parameters_that_are_left_over_for_a_reason(change: str) -> None:
    story = Story()
    story.shard("b0", "b1")
    if change == "frozen":
        story.trace.modules["head"].frozen = True
    if change == "ddp":
        story.trace.modules["ddp"] = Module("ddp", "DDP", wrapper="ddp", inner="net")
    if change == "reduced":
        story.add(BackwardRun)
        story.add(Collective, api="torch.distributed.all_reduce")
    story.train(over=("layers",) if change == "not optimized" else ("net",))
    if change == "root later":
        story.shard("net")
    assert story.lines("FSDP105") == []


def test_a_second_copy_at_one_place_is_one_finding() -> None:
    story = Story()
    story.add(ModuleCopied, module="net", line=1)
    story.shard("b1")
    for _ in range(2):
        story.add(ModuleCopied, module="net", line=9)
    (finding,) = story.findings("FSDP107")
    assert finding.site.location().line == 9
    assert "`Net`, parts of which are sharded" in finding.message


def test_a_copy_of_one_of_several_modules_out_of_sight() -> None:
    story = Story()
    story.trace.modules["b0"].repeated = True
    story.shard("b0")
    story.add(ModuleCopied, module="b0")
    assert story.lines("FSDP107") == [2]
    story.trace.modules["b0"].children_known = False
    assert story.lines("FSDP107") == []
