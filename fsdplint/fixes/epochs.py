"""Set a sampler's epoch in the loop over the epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from fsdplint.edits.places import blocks_around
from fsdplint.interpreter.torch_values import LoaderValue, SamplerValue
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import bound_by, dotted_name, dotted_names, part_of
from fsdplint.trace import LoaderIterated, Site

if TYPE_CHECKING:
    from fsdplint.edits.rewrite import Rewrite
    from fsdplint.interpreter import Program


@dataclass(frozen=True)
class EpochLoop:
    """`for epoch in range(...)` around the passes over a loader.

    variable: the name of the epoch.
    inwards: the calls from the loop's body down to the pass.
    """

    source: Source
    loop: cst.For
    variable: str
    inwards: tuple[Site, ...]


def set_epoch_in_loop(rewrite: Rewrite, program: Program, begun: LoaderIterated) -> bool:
    """Call `set_epoch` first in the loop over the epochs; False if that is not certain to be
    right."""
    place = epoch_loop((*begun.stack, begun.site))
    if place is None or begun.sampler is None:
        return False
    sampler = _expression(program, place, begun.sampler)
    body = place.loop.body.body
    if sampler is None or not body:
        return False
    line = f"{sampler}.set_epoch({place.variable})"
    rewrite.insert_before(place.source, body[0], [line])
    return True


def epoch_loop(sites: tuple[Site, ...]) -> EpochLoop | None:
    """The innermost loop around a pass over a loader, which is itself a loop."""
    for number, site in reversed(list(enumerate(sites))):
        if not isinstance(site, NodeSite):
            return None
        child: cst.CSTNode = site.node
        for node in _ancestors(site):
            if isinstance(node, cst.While | cst.BaseComp):
                return None
            if isinstance(node, cst.For) and child is not node.iter:
                return _counting(site.source, node, sites[number:])
            child = node
    return None


def _ancestors(site: NodeSite) -> Iterator[cst.CSTNode]:
    """The ancestors of a node, up to its function."""
    node = site.source.parent(site.node)
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        yield node
        node = site.source.parent(node)


def _counting(source: Source, loop: cst.For, sites: tuple[Site, ...]) -> EpochLoop | None:
    """The loop, if it counts with a variable that is not a throwaway name."""
    target, over = loop.target, loop.iter
    while isinstance(over, cst.Call) and dotted_name(over.func).rpartition(".")[2] in {"tqdm"}:
        if not over.args or over.args[0].star or over.args[0].keyword is not None:
            return None
        over = over.args[0].value
    counts = isinstance(over, cst.Call) and dotted_name(over.func).rpartition(".")[2] in {
        "range",
        "trange",
    }
    if not counts or not isinstance(target, cst.Name) or target.value.startswith("_"):
        return None
    return EpochLoop(source, loop, target.value, sites)


def _expression(program: Program, place: EpochLoop, sampler: str) -> str | None:
    """How the code at the start of the loop refers to the sampler: by its name or its loader's."""
    names = [*_names(place), *_of_self(place)]
    for name in names:
        if _stands_for_sampler(program, name, sampler):
            return dotted_name(name)
    for name in names:
        if _stands_for_loader(program, name, sampler):
            return f"{dotted_name(name)}.sampler"
    return None


def _names(place: EpochLoop) -> Iterator[cst.BaseExpression]:
    """The dotted names that have the same meaning at the start of the loop.

    They are those in the loop's body, then those in the statements before the loop, the nearest
    first.
    """
    bound = bound_by(place.loop)
    yield from _parts(place.loop.body, bound)
    changed = set(bound)
    for block, own in blocks_around(NodeSite(place.source, place.loop)):
        body = list(block.body)
        for statement in reversed(body[: body.index(own)]):
            if isinstance(statement, cst.SimpleStatementLine):
                yield from _parts(statement, changed)
            changed |= bound_by(statement)


def _of_self(place: EpochLoop) -> Iterator[cst.BaseExpression]:
    """The attributes of `self` that the pass reads, if the loop calls it as `self.method()`."""
    *calls, last = place.inwards
    bound = bound_by(place.loop)
    for site in (*calls, last):
        if not isinstance(site, NodeSite):
            return
        function = _function(site)
        if function is None or _class(site.source, function) is not _class(
            place.source, _function(NodeSite(place.source, place.loop))
        ):
            return
        bound |= bound_by(function)
        if site is not last and not (
            isinstance(site.node, cst.Call)
            and dotted_name(site.node.func).rpartition(".")[0] == "self"
        ):
            return
    if calls and isinstance(last, NodeSite):
        for name in _parts(last.node, bound):
            if dotted_name(name).startswith("self."):
                yield name


def _function(site: NodeSite) -> cst.FunctionDef | None:
    node = site.source.parent(site.node)
    while node is not None and not isinstance(node, cst.FunctionDef):
        node = site.source.parent(node)
    return node


def _class(source: Source, function: cst.FunctionDef | None) -> cst.CSTNode | None:
    """The class of a method; the function itself if it is not a method."""
    if function is None:
        return None
    block = source.parent(function)
    owner = source.parent(block) if block is not None else None
    return owner if isinstance(owner, cst.ClassDef) else function


def _parts(node: cst.CSTNode, changed: set[str]) -> Iterator[cst.BaseExpression]:
    for name in dotted_names(node):
        part: cst.BaseExpression = name
        while isinstance(part, cst.Name | cst.Attribute):
            if not any(part_of(dotted_name(part), c) for c in changed):
                yield part
            if not isinstance(part, cst.Attribute):
                break
            part = part.value


def _stands_for_sampler(program: Program, node: cst.CSTNode, sampler: str) -> bool:
    values = program.values(node)
    return bool(values) and all(isinstance(v, SamplerValue) and v.id == sampler for v in values)


def _stands_for_loader(program: Program, node: cst.CSTNode, sampler: str) -> bool:
    values = program.values(node)
    return bool(values) and all(
        isinstance(v, LoaderValue) and v.sampler is not None and v.sampler.id == sampler
        for v in values
    )
