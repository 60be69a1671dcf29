"""What would go wrong although every use of FSDP1 has a rewrite."""

from __future__ import annotations

import libcst as cst

from fsdplint.layout import descend
from fsdplint.program.source import NodeSite, Source
from fsdplint.rules.migration.context import Blocked, Migration, nodes
from fsdplint.rules.migration.names import FSDP
from fsdplint.rules.migration.scopes import ancestors
from fsdplint.trace import Compiled, OptimizerBuilt, Wrapped


def run(migration: Migration) -> None:
    """Add a blocker for each of them."""
    calls = _constructors(migration)
    _wrapped_here(migration, calls)
    if not calls:
        return
    for check in (_called_here, _no_inference_mode, _optimizers, _compiled):
        check(migration, calls)


def _block(migration: Migration, source: Source, node: cst.CSTNode, reason: str) -> None:
    migration.blockers.append(Blocked(source, node, reason))


def _constructors(migration: Migration) -> list[tuple[Source, cst.Call]]:
    return [
        (source, node)
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and migration.fsdp1(node.func) == FSDP
    ]


def _wrapped_here(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """Without the constructor call the rest must stay as it is."""
    if calls:
        return
    for source in migration.sources:
        for node in nodes(source):
            if node in migration.names:
                _block(migration, source, node, "the file that wraps the model is not given")
                return
        for node in nodes(source):
            if isinstance(node, cst.Call):
                _block(migration, source, node, "the file that wraps the model is not given")
                return


def _called_here(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """A function that wraps a model and is called by nobody here is called from elsewhere."""
    for source, call in calls:
        function = _outer_function(source, call)
        if function is None or _is_named(migration, function):
            continue
        _block(
            migration,
            source,
            call,
            f"`{function.name.value}` is called from files that are not given",
        )


def _outer_function(source: Source, node: cst.CSTNode) -> cst.FunctionDef | cst.ClassDef | None:
    """The function or class of the file's top level that holds a node."""
    outer = None
    for parent in ancestors(source, node):
        if isinstance(parent, cst.FunctionDef | cst.ClassDef):
            outer = parent
    return outer


def _is_named(migration: Migration, function: cst.FunctionDef | cst.ClassDef) -> bool:
    """Whether some code here names the function (but for its own body)."""
    name = function.name.value
    own = set(descend(function))
    for source in migration.program.sources.values():
        for node in descend(source.tree):
            if isinstance(node, cst.Name) and node.value == name and node not in own:
                if not isinstance(source.parent(node), cst.ImportAlias):
                    return True
    return False


def _no_inference_mode(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    for source in migration.program.sources.values():
        if "inference_mode" not in source.text:
            continue
        for node in nodes(source):
            name = node.attr.value if isinstance(node, cst.Attribute) else ""
            if name == "inference_mode" or (
                isinstance(node, cst.Name) and node.value == "inference_mode"
            ):
                at = source if source in migration.sources else calls[0][0]
                where = node if source in migration.sources else calls[0][1]
                _block(
                    migration,
                    at,
                    where,
                    "a forward under `torch.inference_mode` fails in FSDP2 (use `torch.no_grad`)",
                )
                return


def _optimizers(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """FSDP1 with use_orig_params lets the optimizer be built first, FSDP2 never."""
    for trace in migration.program.traces:
        for event in trace.of(Wrapped):
            for built in trace.before(event, OptimizerBuilt):
                if any(trace.related(module, event.inner) for module in built.modules):
                    site = built.site
                    if isinstance(site, NodeSite) and not _known(migration, site.node):
                        _block(
                            migration,
                            site.source,
                            site.node,
                            "the optimizer is built before the model is wrapped",
                        )


def _compiled(migration: Migration, calls: list[tuple[Source, cst.Call]]) -> None:
    """FSDP2 wants blocks compiled before they are sharded."""
    for trace in migration.program.traces:
        for event in trace.of(Compiled):
            if event.module not in trace.modules:
                continue
            if trace.modules[event.module].wrapper == "fsdp1":
                site = event.site
                if isinstance(site, NodeSite) and not _known(migration, site.node):
                    _block(
                        migration,
                        site.source,
                        site.node,
                        "`torch.compile` of a wrapped model is not migrated yet",
                    )


def _known(migration: Migration, node: cst.CSTNode) -> bool:
    return any(blocker.node is node for blocker in migration.blockers)
