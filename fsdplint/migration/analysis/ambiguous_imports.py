"""Names that a file imports from FSDP1 in one place and from elsewhere in another.

`try: from torch_xla... import XlaFullyShardedDataParallel as FSDP` with torch's class in the
`except`: the configuration decides which class a use means, and only torch's may become FSDP2. A use
that certainly means the other library's class stays; a use that may mean either blocks.
"""

from __future__ import annotations

import re
from dataclasses import replace

import libcst as cst

from fsdplint.diagnostics.finding import Fix, Import
from fsdplint.edits.imports.block import node_at
from fsdplint.edits.unused_imports import taken_by_others
from fsdplint.interpreter.values import Dict, ModuleValue, Sequence, Symbol, Value
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.analysis.conditional_imports import OTHER_ARM, TORCH_ARM, Choice, choice_of
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.program import (
    EDIT_IN_OTHER_BRANCH,
    GIVEN_TO_OTHER_LIBRARY,
    IMPORTED_FROM_TWO,
    NAME_OF_TWO_LIBRARIES,
)
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import FSDP, PREFIX, fsdp1_name
from fsdplint.source.source import Source
from fsdplint.syntax.bindings import Imported, bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import canonical

CONSTANT = re.compile(r"True|False|None|[\d.]+|([\"']).*\1")
POLICIES = {
    "transformer_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "lambda_auto_wrap_policy",
}


def resolve_names(migration: Migration, source: Source) -> None:
    """Keep uses of the other library's names, and block on names that may mean either.

    The other uses of such a name are not reported.
    """
    found: dict[str, list[Imported]] = {}
    for item in bindings_of(source).imports():
        found.setdefault(item.spelling, []).append(item)
    hidden = set()
    for name, items in found.items():
        torch_imports = [item for item in items if _name(item) is not None]
        other = next((x for x in items for y in torch_imports if _differs(source, x, y)), None)
        if other is None:
            continue
        program = full_program(migration.program)
        choice = choice_of(source, items, list(program.sources.values()))
        if choice is not None and not _is_imported_elsewhere(migration, choice):
            if _resolve_uses(migration, choice):
                continue
        else:
            blocked = Blocked(
                source,
                other.statement,
                IMPORTED_FROM_TWO(name=name, other=other.full),
            )
            migration.blockers.append(blocked)
        hidden.add(name)
    for node in list(migration.names):
        if source.parent(node) is not None and dotted_name(node).partition(".")[0] in hidden:
            del migration.names[node]


def _resolve_uses(migration: Migration, choice: Choice) -> bool:
    """Keep the uses in the other library's arm. Returns whether no use may mean either."""
    source, name = choice.source, choice.torch_import.local
    unclear: list[cst.CSTNode] = []
    for node in list(migration.symbols):
        if source.parent(node) is None or dotted_name(node).partition(".")[0] != name:
            continue
        arm = choice.arm_of(node)
        if arm == TORCH_ARM and not _is_other_in_trace(migration, choice, node):
            continue
        if arm == OTHER_ARM:
            migration.imports.other_arm.append((choice, node))
            del migration.symbols[node]
            migration.names.pop(node, None)
        else:
            unclear.append(node)
    for node in source.descend(source.tree):
        if isinstance(node, cst.SimpleString) and re.search(rf"\b{name}\b", node.raw_value):
            if any(isinstance(x, cst.Annotation) for x in ancestors(source, node)):
                unclear.append(node)
    if unclear and all(_is_policy(migration, node) for node in unclear):
        _keep_policy(migration, choice)
        return True
    for node in unclear:
        reason = NAME_OF_TWO_LIBRARIES(name=name, other=choice.other_import.full)
        migration.blockers.append(Blocked(source, node, reason))
    if not unclear:
        migration.imports.choices.setdefault(source, []).append(choice)
        package = choice.other_import.module.partition(".")[0]
        migration.note(
            f"code for `{package}` stays as it is",
            source,
            choice.other_import.statement,
            detail="Files that both configurations import need a torch with FSDP2 in both.",
        )
    return not unclear


def _is_policy(migration: Migration, node: cst.CSTNode) -> bool:
    """Whether a use is `partial(transformer_auto_wrap_policy, ...)` with such a function."""
    if migration.fsdp1(node) not in POLICIES:
        return False
    return any(
        isinstance(call, cst.Call)
        and migration.symbol(call.func) == "functools.partial"
        and call.args[0].value is node
        for call in (source.parent(arg) for source, arg in _arguments(migration, node))
    )


def _arguments(migration: Migration, node: cst.CSTNode) -> list[tuple[Source, cst.CSTNode]]:
    """The argument whose value a node is, with its file."""
    found = ((source, source.parent(node)) for source in migration.sources)
    return [(source, arg) for source, arg in found if isinstance(arg, cst.Arg)]


def _keep_policy(migration: Migration, choice: Choice) -> None:
    """Keep a policy that either library may create; torch's arm calls it with three arguments."""
    source, name = choice.source, choice.torch_import.local
    migration.policies.shared_names.add((source.path, choice.torch_import.spelling))
    for node in list(migration.names):
        if source.parent(node) is not None and dotted_name(node) == name:
            del migration.names[node]
            migration.policies.shared.add(node)


def _is_other_in_trace(migration: Migration, choice: Choice, node: cst.CSTNode) -> bool:
    """Whether a use has the other library's class as a value."""
    full = canonical(choice.other_import.full)
    return any(
        isinstance(value, Symbol) and f"{value.name}.".startswith(f"{full}.")
        for value in migration.values(node)
    )


def _is_imported_elsewhere(migration: Migration, choice: Choice) -> bool:
    """Whether another file imports the name from this one."""
    return taken_by_others(
        choice.source, choice.torch_import, migration.program.sources, stars=True
    )


def check_arguments(migration: Migration) -> None:
    """Block where the other library's class gets an argument that the migration rewrites."""
    texts = {
        code
        for source in migration.sources
        for node in nodes(source)
        if isinstance(node, cst.Call) and migration.fsdp1(node.func) == FSDP
        for code in (source.code(x.value) for x in node.args[1:])
        if not CONSTANT.fullmatch(code)
    }
    for choice, node in migration.imports.other_arm:
        source = choice.source
        call = source.parent(node)
        if isinstance(call, cst.Arg):  # partial(FSDP, ...)
            call = source.parent(call)
        for arg in call.args if isinstance(call, cst.Call) else ():
            for part in descend(arg.value):
                values = migration.values(part) if isinstance(part, cst.BaseExpression) else []
                unseen = not values and source.code(part) in texts
                if any(_becomes(migration, value) for value in values) or unseen:
                    reason = GIVEN_TO_OTHER_LIBRARY(other=choice.other_import.full)
                    blocked = Blocked(source, arg, reason)
                    migration.blockers.append(blocked)
                    break


def _becomes(migration: Migration, value: Value, depth: int = 0) -> bool:
    """Whether the code that creates a value, or an item of it, changes."""
    if isinstance(value, Symbol):
        return fsdp1_name(value.name) is not None and not value.name.endswith("_wrap_policy")
    if isinstance(value, ModuleValue):
        return False
    site = value.created_at
    if site is not None and migration.is_changed(site.source, site.node):
        return True
    inner: list[Value] = []
    if isinstance(value, Dict):
        inner = list(value.items.values())
    if isinstance(value, Sequence):
        inner = list(value.items)
    return depth < 4 and any(_becomes(migration, x, depth + 1) for x in inner)


def check_edits(migration: Migration, fix: Fix) -> list[Blocked]:
    """The blockers of edits in the other library's arm."""
    blockers = []
    for source, choices in migration.imports.choices.items():
        for edit in fix.edits:
            node = node_at(source, edit.start) if edit.path == source.path else None
            if node is not None and edit.start < edit.end:
                for choice in choices:
                    if choice.arm_of(node) == OTHER_ARM:
                        reason = EDIT_IN_OTHER_BRANCH(other=choice.other_import.full)
                        blockers.append(Blocked(source, node, reason))
    return blockers


def place_imports(migration: Migration, fix: Fix) -> Fix:
    """The fix with its imports in the arm that needs them.

    Imports that only torch's arm uses go beside the import of torch's class. That import is removed,
    although the other library's has the same name.
    """
    kept = tuple(
        (path, name)
        for path, name in fix.maybe_unused_imports
        if (path, name.removesuffix("!")) not in migration.policies.shared_names
    )
    fix = replace(fix, maybe_unused_imports=kept)
    for source, choices in migration.imports.choices.items():
        wanted = [item for path, item in fix.imports if path == source.path]
        all_in_torch_arm = _all_in_torch_arm(migration, source, choices)
        moved = {
            item: _import_in_torch_arm(choices, source, item, all_in_torch_arm) for item in wanted
        }
        for item in wanted:  # an import that other code needs as well goes to the other imports
            alike = [x for x in wanted if (x.module, x.name) == (item.module, item.name)]
            if any(moved[x] is None for x in alike):
                moved[item] = None
        imports = dict.fromkeys(
            (path, (moved[item] or item) if path == source.path else item)
            for path, item in fix.imports
        )
        chosen = {
            choice.torch_import.spelling: canonical(choice.torch_import.full) for choice in choices
        }
        unused = [
            (path, name)
            for path, name in fix.maybe_unused_imports
            if path != source.path or name.removesuffix("!") not in chosen
        ]
        unused.extend((source.path, f"{name}={full}") for name, full in chosen.items())
        fix = replace(fix, imports=tuple(imports), maybe_unused_imports=tuple(unused))
    return fix


def _import_in_torch_arm(
    choices: list[Choice], source: Source, item: Import, all_in_torch_arm: bool
) -> Import | None:
    """The import beside that of torch's class, or None if code outside of that arm needs it.

    all_in_torch_arm: whether only that arm calls a new function of the file.
    """
    node = node_at(source, item.at)
    if node is None:
        return None
    helper = all_in_torch_arm and any(source.span(x)[0] == item.at for x in source.tree.body)
    for choice in choices:
        if helper or choice.arm_of(node) == TORCH_ARM or choice.is_bound_in_torch_arm_only(node):
            return replace(item, at=source.span(choice.torch_import.statement)[0])
    return None


def _all_in_torch_arm(migration: Migration, source: Source, choices: list[Choice]) -> bool:
    """Whether all uses of FSDP1 in a file are in torch's arm of the first choice."""
    return any(
        all(
            choice.arm_of(node) == TORCH_ARM or choice.is_bound_in_torch_arm_only(node)
            for node in migration.names
            if source.parent(node) is not None
        )
        for choice in choices[:1]
    )


def _name(item: Imported) -> str | None:
    if item.full == PREFIX:
        return ""
    return fsdp1_name(canonical(item.full))


def _differs(source: Source, item: Imported, torch_import: Imported) -> bool:
    """Whether an import in another block gives the name another meaning."""
    name, own = _name(item), _name(torch_import)
    if name == own or (name and own and name.rpartition(".")[2] == own.rpartition(".")[2]):
        return False  # a name of FSDP1 that has moved between modules
    return _block(source, item) is not _block(source, torch_import)


def _block(source: Source, item: Imported) -> object:
    line = source.parent(item.statement)
    return source.parent(line) if line is not None else None
