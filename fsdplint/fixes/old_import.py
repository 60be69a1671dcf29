"""Replace FSDP2's old import paths by the public ones."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.syntax import uses
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.qualified_names import walk
from fsdplint.trace import Imported, Site
from fsdplint.trace.torch_versions import COMPOSABLE, FSDP, HOMES, NAMES

TITLE = f"Import it from `{FSDP}`"


def rewrite_import(site: Site, event: Imported, *, fsdp1: bool) -> Fix | None:
    """Import under the public name; None if the fix needs more than that."""
    if not isinstance(site, NodeSite):
        return None
    source, node, rewrite = site.source, site.node, Rewrite()
    if isinstance(node, cst.ImportFrom) and node.module is not None and not node.relative:
        rewritten = (
            _from_fsdp1(rewrite, source, node, event)
            if fsdp1
            else _from_old_home(rewrite, source, node, event)
        )
        if not rewritten:
            return None
        return rewrite.fix(TITLE, Safety.UNSAFE) if fsdp1 else _same_objects(rewrite)
    if isinstance(node, cst.Import) and not fsdp1 and _module(rewrite, source, node, event):
        return _same_objects(rewrite)
    return None


def _same_objects(rewrite: Rewrite) -> Fix:
    return replace(rewrite.fix(TITLE, Safety.SAFE), same_objects=True)


def _from_old_home(rewrite: Rewrite, source: Source, node: cst.ImportFrom, event: Imported) -> bool:
    """`from torch.distributed._composable.fsdp import fully_shard`."""
    assert node.module is not None
    if event.package == COMPOSABLE:
        local = _only_name(node)
        if event.names != ("fsdp",) or local is None or not _used_for_names(source, local):
            return False
        rewrite.replace(source, node.module, FSDP.rpartition(".")[0])
        return True
    if not set(event.names) <= set(HOMES.get(event.package, ())):
        return False
    rewrite.replace(source, node.module, FSDP)
    return True


def _from_fsdp1(rewrite: Rewrite, source: Source, node: cst.ImportFrom, event: Imported) -> bool:
    """`from torch.distributed._composable import fully_shard`, if it only gets modules."""
    assert node.module is not None
    local = _only_name(node)
    if local is None:
        return False
    for use in uses(source.tree, local):
        parent = source.parent(use)
        if isinstance(parent, cst.ImportAlias | cst.AsName):
            continue
        if not (isinstance(parent, cst.Call) and parent.func is use and len(parent.args) == 1):
            return False
        if parent.args[0].keyword is not None or parent.args[0].star:
            return False
    rewrite.replace(source, node.module, FSDP)
    return True


def _module(rewrite: Rewrite, source: Source, node: cst.Import, event: Imported) -> bool:
    """`import torch.distributed._composable.fsdp`, with or without an alias."""
    alias = node.names[0]
    if len(node.names) != 1 or event.package not in HOMES:
        return False
    rewrite.replace(source, alias.name, FSDP)
    if alias.asname is not None:
        name = alias.asname.name
        return isinstance(name, cst.Name) and _used_for_names(source, name.value)
    for use in walk(source):
        text = dotted_name(use) if isinstance(use, cst.Attribute) else ""
        if not (text + ".").startswith(f"{event.package}.") or use is alias.name:
            continue
        rest = text[len(event.package) + 1 :]
        if rest.partition(".")[0] not in NAMES:
            return False
        rewrite.replace(source, use, f"{FSDP}.{rest}")
    return True


def _only_name(node: cst.ImportFrom) -> str | None:
    """The local name of an import of a single name."""
    if isinstance(node.names, cst.ImportStar) or len(node.names) != 1:
        return None
    alias = node.names[0]
    return alias.evaluated_alias or alias.evaluated_name


def _used_for_names(source: Source, local: str) -> bool:
    """Whether a module is used only for public names of FSDP2: `fsdp.fully_shard`."""
    for use in uses(source.tree, local):
        parent = source.parent(use)
        if isinstance(parent, cst.ImportAlias | cst.AsName):
            continue
        if not (isinstance(parent, cst.Attribute) and parent.value is use):
            return False
        if parent.attr.value not in NAMES:
            return False
    return True
