"""States of compiled models: torch's getters remove the `_orig_mod.` that FSDP1 keeps in names.

FSDP1 (and `state_dict()` itself) names a parameter by its full path, with an `_orig_mod.` for each
module that `torch.compile` has wrapped. Existing checkpoints have these names.
"""

from __future__ import annotations

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.migration.text import atom, call
from fsdplint.source.source import Source
from fsdplint.trace import Compiled, GuardKind

PREFIX = "_orig_mod."


def compiled_names(migration: Migration, node: cst.BaseExpression) -> str:
    """How torch.compile changes the names of a model's parameters.

    "root": only the whole model is compiled. "parts": parts of it are compiled, or it is compiled in
    some configurations. "": nothing is compiled.
    """
    values = migration.values(node)
    if not values:
        return "parts" if migration.wrapping_of(node) and _compiles(migration) else ""
    models = [value for value in values if isinstance(value, ModuleValue)]
    roots = [_is_root(model) for model in models]
    if any(_parts(migration, model) for model in models) or any(roots) and not all(roots):
        return "parts"
    if any(_is_optional(migration, model) for model in models):
        return "parts"
    return "root" if any(roots) else ""


def _is_root(model: ModuleValue) -> bool:
    """Whether torch.compile wraps a model, or the inner module of its FSDP1 wrapper."""
    inner: ModuleValue | None = model
    while isinstance(inner, ModuleValue) and inner.wrapper:
        if inner.wrapper == "compile":
            return True
        inner = inner.inner
    return False


def _is_optional(migration: Migration, model: ModuleValue) -> bool:
    """Whether a setting of the program decides whether a model is compiled."""
    return any(
        event.result == model.id and any(g.kind is GuardKind.CONFIG for g in event.guards)
        for trace in migration.program.traces
        for event in trace.of(Compiled)
    )


def _parts(migration: Migration, model: ModuleValue) -> bool:
    """Whether a part of a model is compiled."""
    whole = set()
    inner: ModuleValue | None = model
    while isinstance(inner, ModuleValue):
        whole.add(inner.id)
        inner = inner.inner
    return any(
        event.result != event.module
        and event.module not in whole
        and any(event.module in trace.submodules(one) for one in whole if one in trace.modules)
        for trace in migration.program.traces
        for event in trace.of(Compiled)
    )


def _compiles(migration: Migration) -> bool:
    """Whether these files call `torch.compile`, for models that are not known."""
    return any(
        isinstance(node, cst.Call) and migration.symbol(node.func) == "torch.compile"
        for source in migration.sources
        for node in nodes(source)
    )


# Models ------------------------------------------------------------------------------------------


def take(
    migration: Migration,
    source: Source,
    node: cst.Call,
    kind: str,
    getter: str,
    model: str,
    options: str,
) -> None:
    """Replace `state_dict()` by a call of a getter, and add the prefix to the names again.

    kind: how the model is compiled (`compiled_names`).
    """
    given = [model, f"options={options}"]
    indent = migration.indent(source, node)
    if kind == "parts":
        name = _name_as_model(migration, source, node)
        state = call(source, indent, getter, given, depth=1)
        migration.put_call(source, node, name, [model, state])
        return
    quote = string_literal(source, "")[0]
    items = call(source, indent, f"for name, value in {getter}", given, ".items()", depth=1)
    text = f"{{\n\tf{quote}{PREFIX}{{name}}{quote}: value\n\t{items}\n}}"
    migration.substitute(source, node, migration.indent_at(source, node, text))


def without_prefix(source: Source, kind: str, state: str) -> str:
    """The text of a state with the names that torch's setter expects."""
    prefix = string_literal(source, PREFIX)
    name = f"name.removeprefix({prefix})" if kind == "root" else _name_without_prefix(source)
    return f"{{{name}: value for name, value in {atom(state)}.items()}}"


def _name_without_prefix(source: Source) -> str:
    return f"name.replace({string_literal(source, PREFIX)}, {string_literal(source, '')})"


def _name_as_model(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper that gives a model's state the model's own names."""
    return write_once(
        migration,
        source,
        top_level(source, at),
        "name_as_model",
        [
            "def name_as_model(model, state):",
            '\t"""Give names the `_orig_mod.` of compiled modules, which torch\'s getter leaves out."""',
            f"\tnames = {{{_name_without_prefix(source)}: name for name in model.state_dict()}}",
            "\treturn {names[name]: value for name, value in state.items()}",
        ],
    )


# Optimizers --------------------------------------------------------------------------------------


def with_names(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper that gives an optimizer's state the names of FSDP1 and the model."""
    groups, state, params = (string_literal(source, x) for x in ("param_groups", "state", "params"))
    return write_once(
        migration,
        source,
        top_level(source, at),
        "name_optimizer_as_model",
        [
            "def name_optimizer_as_model(model, state):",
            '\t"""Give names the `_orig_mod.` of compiled modules, which torch\'s getter leaves out."""',
            "\tif not state:",
            "\t\treturn state",
            f"\tnames = {{{_name_without_prefix(source)}: name for name in model.state_dict()}}",
            f"\tvalues = {{names[name]: value for name, value in state[{state}].items()}}",
            "\tgroups = [",
            f"\t\t{{**group, {params}: [names[name] for name in group[{params}]]}}",
            f"\t\tfor group in state[{groups}]",
            "\t]",
            f"\treturn {{{state}: values, {groups}: groups}}",
        ],
    )


def without_names(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The name of a helper that gives an optimizer's state the names that torch's setter expects."""
    groups, state, params = (string_literal(source, x) for x in ("param_groups", "state", "params"))
    return write_once(
        migration,
        source,
        top_level(source, at),
        "without_compiled_names",
        [
            "def without_compiled_names(state):",
            '\t"""Take the `_orig_mod.` of compiled modules off names, as torch\'s setter wants them."""',
            "\tif not state:",
            "\t\treturn state",
            "",
            "\tdef plain(name):",
            f"\t\treturn {_name_without_prefix(source)}",
            "",
            f"\tvalues = {{plain(name): value for name, value in state[{state}].items()}}",
            "\tgroups = [",
            f"\t\t{{**group, {params}: [plain(name) for name in group[{params}]]}}",
            f"\t\tfor group in state[{groups}]",
            "\t]",
            f"\treturn {{{state}: values, {groups}: groups}}",
        ],
    )
