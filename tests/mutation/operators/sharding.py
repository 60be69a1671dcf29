"""Arguments of the sharding, and what is done to a model after it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP2, FileSyntax, argument, with_argument, without
from mutation_operator import Plan, operator
from planting import Statement, statements, text_of

from operators.sharding_order import sharding_loop, sharding_statements


def after_sharding(
    syntax: FileSyntax, version: int = FSDP2
) -> Iterator[tuple[cst.SimpleStatementLine, str]]:
    """The statements that shard a root, with its name, where further statements can follow."""
    for statement, root, call in sharding_statements(syntax):
        if version != FSDP2:
            names = [t for t in syntax.targets(call) if syntax.roots.get(t) == version]
            root = names[0] if names else ""
        if syntax.roots.get(root) == version and not isinstance(statement.body[0], cst.Return):
            yield statement, root


def _followed(
    syntax: FileSyntax, text: str, head: str = "", version: int = FSDP2
) -> Iterator[Plan]:
    """Plans that put a text with MODEL in it below the sharding."""
    for statement, root in after_sharding(syntax, version):
        added: list[Statement] = statements(text.replace("MODEL", root))
        yield Plan(statement, {statement: [statement, *added]}, head)


@operator("FSDP107")
def deep_copy(syntax: FileSyntax) -> Iterator[Plan]:
    """The sharded model is copied."""
    yield from _followed(syntax, "average = copy.deepcopy(MODEL)\n", "import copy\n")


@operator("FSDP107")
def deep_copy_method(syntax: FileSyntax) -> Iterator[Plan]:
    """An averaged model is made of the sharded model."""
    text = "average = torch.optim.swa_utils.AveragedModel(MODEL)\n"
    head = "import torch\nimport torch.optim.swa_utils\n"
    yield from _followed(syntax, text, head)


@operator("FSDP115")
def data_parallel(syntax: FileSyntax) -> Iterator[Plan]:
    """DDP wraps the sharded model."""
    text = "MODEL = torch.nn.parallel.DistributedDataParallel(MODEL)\n"
    yield from _followed(syntax, text, "import torch\n")


@operator("FSDP410")
def reshard_off(syntax: FileSyntax) -> Iterator[Plan]:
    """Parameters are not resharded after the backward."""
    yield from _followed(syntax, "MODEL.set_reshard_after_backward(False)\n")


@operator("FSDP206")
def summon(syntax: FileSyntax) -> Iterator[Plan]:
    """FSDP1's `summon_full_params` is used on a model of FSDP2."""
    text = (
        "with FullyShardedDataParallel.summon_full_params(MODEL):\n"
        "    size = sum(p.numel() for p in MODEL.parameters())\n"
    )
    head = "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    yield from _followed(syntax, text, head)


@operator("FSDP212")
def wrapper_attribute(syntax: FileSyntax) -> Iterator[Plan]:
    """The attribute `module` of FSDP1's wrapper is read from a model of FSDP2."""
    yield from _followed(syntax, "whole = MODEL.module\n")


@operator("FSDP505")
def join(syntax: FileSyntax) -> Iterator[Plan]:
    """`Join` is used with a sharded model."""
    head = "from torch.distributed.algorithms.join import Join\n"
    yield from _followed(syntax, "with Join([MODEL]):\n    pass\n", head)


@operator("FSDP113")
def layer_replaced(syntax: FileSyntax) -> Iterator[Plan]:
    """A linear layer of the sharded model is replaced by a new one."""
    for statement, root in after_sharding(syntax):
        for name, arguments in _constant_linears(syntax, root):
            text = f"{root}.{name} = torch.nn.Linear({arguments})\n"
            yield Plan(statement, {statement: [statement, *statements(text)]}, "import torch\n")


@operator("FSDP121")
def row_edited(syntax: FileSyntax) -> Iterator[Plan]:
    """A row of a sharded weight is changed in place."""
    for statement, root in after_sharding(syntax):
        for name, _ in _constant_linears(syntax, root):
            text = f"with torch.no_grad():\n    {root}.{name}.weight[0].zero_()\n"
            yield Plan(statement, {statement: [statement, *statements(text)]}, "import torch\n")


def _constant_linears(syntax: FileSyntax, root: str) -> Iterator[tuple[str, str]]:
    """The linear layers of a root with arguments that mean the same outside of its class."""
    built = syntax.class_built(root)
    for name, arguments, call in syntax.linears.get(built or "", ()):
        words = {n.value for n in m.findall(call, m.Name())} - {"nn", "torch", "Linear", "bias"}  # type: ignore[attr-defined]
        if all(word.isupper() or word in ("False", "True") for word in words):
            yield name, arguments


@operator("FSDP117")
def argument_of_fsdp1(syntax: FileSyntax) -> Iterator[Plan]:
    """`fully_shard` gets an argument of FSDP1."""
    for call in syntax.calls("fully_shard"):
        changed = with_argument(call, "use_orig_params=True")
        yield Plan(call, {call: changed})


@operator("FSDP117")
def strategy_of_fsdp1(syntax: FileSyntax) -> Iterator[Plan]:
    """`fully_shard` gets the strategy of FSDP1 as `reshard_after_forward`."""
    head = "from torch.distributed.fsdp import ShardingStrategy\n"
    for call in syntax.calls("fully_shard"):
        if argument(call, "reshard_after_forward") is None and "**" not in text_of(call):
            yield Plan(
                call,
                {call: with_argument(call, "sharding_strategy=ShardingStrategy.FULL_SHARD")},
                head,
            )


@operator("FSDP117")
def precision_of_fsdp1(syntax: FileSyntax) -> Iterator[Plan]:
    """`fully_shard` gets FSDP1's `MixedPrecision`."""
    head = "from torch.distributed.fsdp import MixedPrecision\n"
    for call in syntax.calls("MixedPrecisionPolicy"):
        if call.args:
            kept = without(call, "output_dtype", "cast_forward_inputs")
            yield Plan(call, {call: kept.with_changes(func=cst.Name("MixedPrecision"))}, head)


@operator("FSDP601")
def root_resharded(syntax: FileSyntax) -> Iterator[Plan]:
    """The root is sharded with `reshard_after_forward=True`."""
    for statement, root, call in sharding_statements(syntax):
        loop = sharding_loop(syntax, syntax.block(statement), root, statement)
        if loop is None or "**" in text_of(call) or call not in syntax.calls("fully_shard"):
            continue
        changed = with_argument(
            without(call, "reshard_after_forward"), "reshard_after_forward=True"
        )
        yield Plan(call, {call: changed})


@operator("FSDP102")
def method_not_registered(syntax: FileSyntax) -> Iterator[Plan]:
    """A method that computes with parameters is not registered."""
    for call in syntax.calls("register_fsdp_forward_method"):
        statement = syntax.statement(call)
        if statement is not None:
            yield Plan(statement, {statement: []})
