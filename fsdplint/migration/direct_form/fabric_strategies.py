"""The strategy of Fabric for FSDP1 as a function that wraps a model by FSDP1."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from fsdplint.config.target_torch import too_old
from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.apply import BrokenFixError, complete
from fsdplint.edits.imports.spelling import local_name
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.lightning import LIGHTNING_TOO_OLD
from fsdplint.migration.context import Migration
from fsdplint.migration.direct_form.rewriting import DirectForm, changed_program
from fsdplint.migration.frameworks import fabric_uses
from fsdplint.migration.frameworks.fabric import strategies_left
from fsdplint.migration.frameworks.fabric_names import OF_TRAINER, new_home, strategies_in
from fsdplint.migration.frameworks.fabric_strategy import StrategyWriter
from fsdplint.migration.frameworks.trainer_strategy import TrainerStrategyWriter
from fsdplint.migration.frameworks.versions import LIGHTNING
from fsdplint.source.folders import project_root
from fsdplint.source.source import Source


def write_functions(direct: DirectForm) -> list[Blocked] | None:
    """Give the strategies of a program functions that wrap models by FSDP1.

    Returns the blockers of those that cannot get one, None if there are no strategies.
    """
    migration = Migration(direct.program, direct.sources)
    found = [(s, node) for s in direct.sources for node in strategies_in(s)]
    found = [one for one in found if one[1] not in migration.uncalled_nodes]
    if not found:
        return None
    files: dict[Source, None] = {}
    for source, node in found:
        with migration.collecting():
            if _write(migration, source, node):
                files.update(dict.fromkeys(fabric_uses.files_together(migration, source)))
    fabric_uses.rewrite_calls(migration, list(files))
    old = _too_old(migration, found[0])
    if old is not None:
        migration.blockers.append(old)
    if migration.blockers:
        return migration.blockers
    migration.finish()
    direct.notes.update(migration.notes)
    try:
        fix = migration.rewrite.fix("Give the strategy a function", Safety.SAFE)
        edits = complete(full_program(direct.program).files, fix)
    except (BrokenFixError, ValueError):
        return strategies_left(migration)
    changed = changed_program(direct, edits)
    if changed is None:
        return strategies_left(migration)
    direct.program, direct.sources = changed
    direct.added |= {(path, local_name(item)) for path, item in fix.imports}
    return []


def _write(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Rewrite a reference to the strategy; whether it makes one."""
    call = source.parent(node)
    is_call = isinstance(call, cst.Call) and call.func is node
    if isinstance(node, cst.SimpleString) or is_call:
        made = call if isinstance(call, cst.Call) and is_call else node
        writer = StrategyWriter(migration, source, made)
        if new_home(writer.full_name) in OF_TRAINER:
            writer = TrainerStrategyWriter(migration, source, made)
        writer.write()
    else:
        fabric_uses.rename_class(migration, source, node)
        return False
    return True


def _too_old(migration: Migration, place: tuple[Source, cst.CSTNode]) -> Blocked | None:
    """The blocker of a project that requires an older Lightning, unless a torch is targeted anyway."""
    source, node = place
    target = migration.program.options.target
    if target is not None and not target.folder:
        return None
    path = Path(source.path)
    for package in ("lightning", "lightning_fabric"):
        old = too_old(package, LIGHTNING, path, project_root(path))
        if old is not None:
            return Blocked(source, node, LIGHTNING_TOO_OLD(since=LIGHTNING, old=old))
    return None
