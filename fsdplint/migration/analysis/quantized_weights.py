"""Quantized weights, whose attributes FSDP2's sharded parameters do not have.

They come from layers of bitsandbytes and HQQ, and from loaders that get `load_in_4bit=True`, itself or
in a `BitsAndBytesConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdplint.migration.analysis.variables import definitions, is_mentioned, outer_function
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import QUANTIZED_WEIGHTS
from fsdplint.migration.context import Migration, nodes
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.trace import ModuleBuilt, Wrapped

LAYERS = {"Linear4bit", "LinearNF4", "LinearFP4", "Params4bit", "Linear8bitLt", "HQQLinear"}
OFF = ("False", "None")
FLAGS = ("load_in_4bit", "load_in_8bit")
CONFIG = "BitsAndBytesConfig"
NOTE = "weights that `{name}` quantizes carry attributes that FSDP2 does not keep"
DETAIL = "The setting is only known at run time. With quantized weights, stay with FSDP1."


def check(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Add a blocker for the first place that makes quantized weights."""
    for source, node, name in (*_quantizing_loaders(migration), *_layers(migration)):
        migration.blockers.append(Blocked(source, node, QUANTIZED_WEIGHTS(name=name)))
        return
    for source, node, name in _quantizing_loaders(migration, certain=False):
        migration.note(NOTE.format(name=name), source, node, detail=DETAIL)


def may_quantize(migration: Migration) -> bool:
    """Whether a setting of the program may quantize the weights of a model that FSDP1 wraps."""
    return next(_quantizing_loaders(migration, certain=False), None) is not None


def _layers(migration: Migration) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """Uses of classes of quantized layers, other than tests, in functions that code mentions."""
    for source in migration.sources:
        for node in nodes(source):
            name = migration.symbol(node).rpartition(".")[2]
            if name not in LAYERS or _is_tested(source, node):
                continue
            function = outer_function(source, node)
            others = migration.program.sources.values()
            if function is None or is_mentioned(others, function):
                yield source, node, name


def _is_tested(source: Source, node: cst.CSTNode) -> bool:
    """Whether a class is only what `isinstance` compares with."""
    return any(
        isinstance(parent, cst.Call)
        and isinstance(parent.func, cst.Name)
        and parent.func.value in ("isinstance", "issubclass")
        for parent in ancestors(source, node)
    )


def _quantizing_loaders(
    migration: Migration, *, certain: bool = True
) -> Iterator[tuple[Source, cst.CSTNode, str]]:
    """The calls that load a model with quantized weights which FSDP1 then wraps.

    certain: whether the weights are certainly quantized; otherwise a setting may decide it.
    """
    for trace in migration.program.traces:
        wrapped: set[str] = set()
        for event in trace.of(Wrapped):
            wrapped |= {event.inner, *trace.submodules(event.inner)}
        for built in trace.of(ModuleBuilt):
            site = built.site
            if built.module in wrapped and isinstance(site, NodeSite):
                call = site.node
                if isinstance(call, cst.Call) and (
                    name := _quantizes(migration, site.source, call, certain)
                ):
                    yield site.source, call, name


def _quantizes(migration: Migration, source: Source, call: cst.Call, certain: bool) -> str:
    """The argument of a loader that makes quantized weights, or ""."""
    if flag := _flag(call, certain):
        return flag
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "quantization_config":
            for config in _configs(source, arg.value):
                if migration.symbol(config.func).endswith(CONFIG) and (
                    flag := _flag(config, certain)
                ):
                    return flag
    return ""


def _configs(source: Source, value: cst.BaseExpression) -> Iterator[cst.Call]:
    """The calls in an expression, or in those that its variables hold."""
    for part in descend(value):
        if isinstance(part, cst.Call):
            yield part
        elif isinstance(part, cst.Name):
            for one in definitions(source, part) or ():
                if isinstance(one.value, cst.CSTNode):
                    yield from (call for call in descend(one.value) if isinstance(call, cst.Call))


def _flag(call: cst.Call, certain: bool) -> str:
    """The first flag among the arguments of a call that is on, or that may be on; or ""."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value in FLAGS:
            if is_constant(arg.value, "True") if certain else not is_constant(arg.value, *OFF):
                return arg.keyword.value
    return ""
