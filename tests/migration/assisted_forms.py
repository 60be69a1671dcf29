"""Programs that an assisted migration rewrites in part."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst

from fsdplint.config.options import Assist, Options
from fsdplint.diagnostics.finding import Fix, Safety
from fsdplint.edits.apply import apply
from fsdplint.interpreter import load
from fsdplint.migration.assisted.open_places import OpenPlace, open_places
from fsdplint.migration.assisted.undecided import NOT_GIVEN, WHOLE_PROGRAM
from fsdplint.migration.constructor.policy_uses import keep_unchanged
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import PREFIX, fsdp1_name
from fsdplint.migration.plan import Plan
from fsdplint.migration.planner import plans_of
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import references


def assisted_texts(*paths: Path) -> tuple[list[Plan], dict[str, str]]:
    """The plans of an assisted migration, and the new text of every file."""
    program = load(list(paths))
    program.options = Options(assist=Assist())
    plans = plans_of(program)
    texts = {path: source.text for path, source in program.sources.items()}
    for plan in plans:
        if plan.blockers:
            continue
        whole = Fix(
            "", Safety.SAFE, plan.edits, plan.imports, plan.group, plan.maybe_unused_imports
        )
        applied = apply(program.sources, [whole])
        assert not applied.broken
        texts.update(applied.texts)
    return plans, texts


def assisted_text(path: Path) -> tuple[Plan, str]:
    """The same for one file."""
    (plan,), texts = assisted_texts(path)
    return plan, texts[str(path)]


def names_left(path: Path, text: str) -> set[str]:
    """The names of FSDP1 in the code of a text."""
    source = Source.from_bytes(str(path), text.encode())
    return {full for _, _, full in references(source, PREFIX) if fsdp1_name(full) is not None}


def names_to_migrate(plan: Plan, path: Path, text: str) -> set[str]:
    """The names of FSDP1 in the code of a text, without those that any migration leaves.

    These are names in functions that nothing calls, and policies that code besides FSDP1's
    constructor reads.
    """
    result = path.with_name("result_" + path.name)
    result.write_text(text, encoding="utf-8")
    program = load([result])
    result.unlink()
    (source,) = program.sources.values()
    uncalled = {name for _, name in plan.untouched}
    untouched = {
        node
        for function in nodes(source)
        if isinstance(function, cst.FunctionDef) and function.name.value in uncalled
        for node in source.descend(function)
    }
    migration = Migration(program, [source], frozenset(untouched))
    keep_unchanged(migration)
    return set(migration.names.values())


def check_assisted(path: Path) -> tuple[list[OpenPlace], str]:
    """The places that raise in the result for a blocked program, and its text.

    The result must compile and raise for each blocker, without a name of FSDP1 in its code that a
    migration does not leave, and a second run must change nothing.
    """
    plan, text = assisted_text(path)
    compile(text, str(path), "exec")
    places = open_places(text)
    if plan.blockers:
        codes = {one.code for one in plan.blockers}
        assert codes & (WHOLE_PROGRAM | NOT_GIVEN), f"{codes} do not concern the whole program"
        assert text == path.read_text(encoding="utf-8")
        return places, text
    left = names_left(path, text) and names_to_migrate(plan, path, text)
    assert not left, f"names of FSDP1 are left: {left}\n{text}"
    assert places, f"nothing raises:\n{text}"
    for place in places:
        assert place.decision and place.blocker and place.reason and place.old
        check_raises(text, place)
    check_unchanged(path, text)
    return places, text


def check_unchanged(path: Path, text: str) -> None:
    """A run on the result changes nothing."""
    again = path.with_name("again_" + path.name)
    again.write_text(text, encoding="utf-8")
    _, texts = assisted_texts(again)
    assert texts[str(again)] == text, f"a second run changes the result:\n{text}"
    again.unlink()


def check_raises(text: str, place: OpenPlace) -> None:
    """The line of a place is a statement that raises what the place says."""
    tree = ast.parse(text)
    (node,) = (x for x in ast.walk(tree) if isinstance(x, ast.Raise) and x.lineno == place.line)
    try:
        exec(compile(ast.Module([node], []), "<place>", "exec"), {})
    except NotImplementedError as error:
        assert str(error) == f"fsdplint: {place.decision} ({place.blocker})"
    else:
        raise AssertionError(place)
