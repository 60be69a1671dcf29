"""The imports of a file: how the code at a node refers to a library's name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from fsdplint.diagnostics.finding import Import
from fsdplint.source.source import Source
from fsdplint.syntax import layout
from fsdplint.syntax.bindings import Bindings, Imported, Scope, bindings_of
from fsdplint.syntax.dotted import dotted_name
from fsdplint.syntax.import_order import ancestors, has_run_before
from fsdplint.syntax.qualified_names import canonical


def name_for(
    source: Source,
    module: str,
    name: str | None,
    at: cst.CSTNode | None,
    planned: Sequence[Import] = (),
    usual: str | None = None,
) -> tuple[str, Import | None]:
    """How to write `module.name` (or the module) at a node, and the import that this needs.

    planned: imports that other edits add to this file.
    usual: the customary local name of such an import (`as dcp`).
    """
    bindings = bindings_of(source)
    existing = _existing_spelling(bindings, module, name, at)
    if existing is not None:
        return existing, None
    if usual is not None:
        used_names = {local_name(x) for x in planned if (x.module, x.name) != (module, name)}
        if usual not in used_names and not re.search(rf"\b{re.escape(usual)}\b", source.text):
            return usual, Import(module, name, usual)
    short_name = name or module.partition(".")[0]
    offset = _place(bindings, module, short_name, at) if at is not None else None
    if _free(bindings, module, name, at) and not any(
        local_name(other) == short_name and (other.module, other.name) != (module, name)
        for other in planned
        if name is not None or other.name is not None or other.alias is not None
    ):
        return name or module, Import(module, name, None, offset)
    alias = _alias(source, module, name, planned)
    return alias, Import(module, name, alias, offset)


def local_name(item: Import) -> str:
    """The name that an import binds."""
    return item.alias or item.name or item.module.partition(".")[0]


def _alias(source: Source, module: str, name: str | None, planned: Sequence[Import]) -> str:
    """A name that the file does not use: `torch_fully_shard`."""
    top, _, last = f"{module}.{name}".rpartition(".") if name else module.rpartition(".")
    package = top.partition(".")[0]
    base = f"{package}_{last}" if package else f"{last}_module"
    if package and last[:1].isupper():
        base = package.capitalize() + last
    used_names = {local_name(x) for x in planned if (x.module, x.name) != (module, name)}
    number = 1
    while True:
        alias = base if number == 1 else f"{base}_{number}"
        if alias not in used_names and not re.search(rf"\b{re.escape(alias)}\b", source.text):
            return alias
        number += 1


def imported_only(scope: Scope, local: str, full: str) -> bool:
    """Whether a function binds a name only by importing `full`."""
    same = [item for item in scope.imports if item.local == local]
    return (
        scope.kind == "function"
        and bool(same)
        and local not in scope.others
        and local not in scope.outer_names
        and all(canonical(item.full) == canonical(full) for item in same)
    )


def _place(bindings: Bindings, module: str, short_name: str, at: cst.CSTNode) -> int:
    """The offset that stands for a node in `Import.at`.

    It is the node's own offset, unless its statement uses a name of the same package that is
    imported conditionally or lazily. Then it is the offset of that import statement, so that the
    new import has the same conditions. If the file also imports the package unconditionally, a lazy
    import counts only for its own module.
    """
    source = bindings.source
    package = module.partition(".")[0]
    scope = bindings.scope_at(at)
    statement = layout.statement_of(source, at)
    own = bindings.owner(scope, short_name)  # a function that imports the name owns it
    best: tuple[bool, int] | None = None
    ancestor_set = {at, *ancestors(source, at)}
    inside = source.descend(statement if isinstance(statement, cst.BaseSmallStatement) else at)
    names = [
        x
        for x in inside
        if isinstance(x, cst.Name) and not _may_be_skipped(source, x, ancestor_set)
    ]
    for name in dict.fromkeys(x.value for x in names):
        owner = bindings.owner(scope, name)
        if own is not None and own.kind == "function" and owner is not own:
            continue
        for item in (
            _only_conditional_import(bindings, owner, name, at) if owner is not None else ()
        ):
            if item.module.partition(".")[0] == package:
                key = (item.module == module, source.span(item.statement)[0])
                of_module = _is_in_package(item.module, module) and not _at_top(bindings, module)
                if of_module or not (_lazy(bindings, item) and _at_top(bindings, package)):
                    best = max(best, key) if best is not None else key
    return best[1] if best is not None else source.span(at)[0]


def _may_be_skipped(source: Source, name: cst.Name, ancestor_set: set[cst.CSTNode]) -> bool:
    """Whether short-circuit evaluation can skip the name while the code at `at` runs."""
    child: cst.CSTNode = name
    for parent in ancestors(source, name):
        if isinstance(parent, cst.BaseStatement | cst.BaseSmallStatement):
            break
        match parent:
            case cst.BooleanOperation():
                skipped = child is parent.right
            case cst.IfExp():
                skipped = child is not parent.test
            case _:
                skipped = isinstance(parent, cst.Lambda | cst.BaseComp)
        if skipped and child not in ancestor_set:
            return True
        child = parent
    return False


def _only_conditional_import(
    bindings: Bindings, scope: Scope, local: str, at: cst.CSTNode
) -> list[Imported]:
    """The conditional import that gives a scope a name at a node, if there is exactly one."""
    candidates = [x for x in scope.imports if x.local == local]
    ran = [x for x in candidates if has_run_before(bindings, x.statement, scope, at)]
    maybe = [x for x in candidates if conditional(bindings.source, x.statement)]
    if ran:
        return ran[-1:] if all(x in maybe for x in ran) else []
    return maybe if len(maybe) == 1 else []


def _lazy(bindings: Bindings, item: Imported) -> bool:
    """Whether an import is in a function and is unconditional there."""
    parents = ancestors(bindings.source, item.statement)
    return item.scope.kind == "function" and parents.index(item.scope.node) == 2


def _at_top(bindings: Bindings, package: str) -> bool:
    """Whether the file imports something of a package unconditionally."""
    return any(
        _is_in_package(item.module, package)
        and isinstance(ancestors(bindings.source, item.statement)[1], cst.Module)
        for item in bindings.module.imports
    )


def _is_in_package(module: str, package: str) -> bool:
    """Whether a module is a package or is inside it."""
    return module == package or module.startswith(f"{package}.")


def in_block(source: Source, at: cst.CSTNode | None) -> bool:
    """Whether a node is in an indented block of its function, where an import is possible."""
    for parent in ancestors(source, at) if at is not None else ():
        if isinstance(parent, cst.IndentedBlock | cst.FunctionDef):
            return isinstance(parent, cst.IndentedBlock)
    return False


def conditional(source: Source, statement: cst.CSTNode) -> bool:
    """Whether an import is in a block that is neither a fallback nor for type checking."""
    parents = ancestors(source, statement)
    return not isinstance(parents[1], cst.Module) and not any(
        isinstance(x, cst.ExceptHandler | cst.ExceptStarHandler)
        or (isinstance(x, cst.If) and dotted_name(x.test).endswith("TYPE_CHECKING"))
        for x in parents
    )


def _existing_spelling(
    bindings: Bindings, module: str, name: str | None, at: cst.CSTNode | None
) -> str | None:
    """The text by which the file's existing imports name something at a node."""
    full = canonical(module if name is None else f"{module}.{name}")
    scope = bindings.scope_at(at) if at is not None else bindings.module
    through_module: str | None = None
    hidden: set[str] = set()
    for owner in scope.chain():
        for item in reversed(owner.imports):
            if item.local in hidden or not is_bound_before(bindings, item, at):
                continue
            if canonical(item.full) == full:
                return item.spelling
            if item.name is None and not item.renamed:
                if name is None and item.full.startswith(module + "."):
                    return module
            elif name is not None and item.full == module:
                through_module = through_module or f"{item.local}.{name}"
        hidden.update(owner.others)
        hidden.update(item.local for item in owner.imports)
        hidden -= owner.outer_names
    return through_module


def is_bound_before(bindings: Bindings, item: Imported, at: cst.CSTNode | None) -> bool:
    """Whether this import has certainly bound the name when the code at a node runs."""
    return has_run_before(bindings, item.statement, item.scope, at, item.local) and _only_meaning(
        bindings, item
    )


def _only_meaning(bindings: Bindings, item: Imported) -> bool:
    """Whether nothing else in its scope gives the name another meaning.

    The fallback of a `try` does not count.
    """
    others: list[cst.CSTNode] = list(item.scope.others.get(item.local, ()))
    for other in item.scope.imports:
        if other.local == item.local and canonical(other.full) != canonical(item.full):
            unaliased = other.name is None and item.name is None
            if not (unaliased and not other.renamed and not item.renamed):
                others.append(other.alias)
    return all(_alternative(bindings.source, item.statement, other) for other in others)


def _alternative(source: Source, statement: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Whether `other` runs only if the `try` or `if` around the statement did not run it."""
    parents = set(ancestors(source, other))
    child = statement
    for parent in ancestors(source, statement):
        instead: list[cst.CSTNode | None] = []
        if isinstance(parent, cst.Try | cst.TryStar) and child is parent.body:
            instead = list(parent.handlers)
        elif isinstance(parent, cst.If) and child is parent.body:
            instead = [parent.orelse]
        if any(node in parents for node in instead):
            return True
        child = parent
    return False


def _free(bindings: Bindings, module: str, name: str | None, at: cst.CSTNode | None) -> bool:
    """Whether the name can be imported without an alias and has this meaning at a node."""
    full = canonical(module if name is None else f"{module}.{name}")
    short_name = name or module.partition(".")[0]
    scope = bindings.scope_at(at) if at is not None else bindings.module
    for owner in scope.chain():
        if owner is not bindings.module:
            if owner.binds(short_name):
                # Another branch of the function imports the name, so this branch can too.
                return imported_only(owner, short_name, full) and in_block(bindings.source, at)
            continue
        same = [item for item in owner.imports if item.local == short_name]
        for item in same:
            package = name is None and item.name is None and not item.renamed
            if canonical(item.full) != full and not package:
                return False
        for other in owner.others.get(short_name, ()):
            if not any(_alternative(bindings.source, x.statement, other) for x in same):
                return False
        if not same and owner.star and ("", short_name) in bindings.uses():
            return all(star == module for star in owner.star)
    return True
