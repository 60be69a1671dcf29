"""`model.part.forward(x)`: a part of a wrapped model that runs outside of the model's own forward.

FSDP1's wrapper of the part gathers its parameters in `forward`. FSDP2 gathers them in hooks of
`part(x)`, and only after the whole model has run, because the first module that runs becomes the
root. Only one form is rewritten, noise that is added to embeddings: `unshard()` gathers an embedding
that the policy wraps as a unit, and the backward of the model's loss reduces its gradient and reshards
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from fsdplint.interpreter.values import Class, LibraryObject, ModuleValue, Partial, Symbol, Value
from fsdplint.interpreter.values import Sequence as Items
from fsdplint.migration.analysis.variables import home_of, reads
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import PART_FIRST, PART_FORWARD
from fsdplint.migration.constructor.ignored_values import may_ignore
from fsdplint.migration.context import Migration, nodes
from fsdplint.migration.names import PARAMETERS
from fsdplint.migration.training.inner_names import INNER
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import imported_names
from fsdplint.trace import Wrapped

EMBEDDING = "torch.nn.Embedding"
NAMES = {"embed_tokens", "wte", "word_embeddings"}  # the names in models of Transformers
WHOLE = (INNER, "module")
INSPECTING = {f"inspect.{name}" for name in ("signature", "getfullargspec", "ismethod")}
WRAP = "torch.distributed.fsdp.wrap"
TITLE = "Gather the embedding before its `forward`"
NOTE = "an embedding whose `forward` is called directly stays gathered until the backward pass"


def rewrite(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Gather an embedding before its `forward`.

    Raises:
        Blocked: the module is another part of a wrapped model.
    """
    if any(around in migration.blocks.gathered for around in ancestors(source, node)):
        return
    root = _root(migration, node.value)
    if root is None or _is_whole_model(root, node.value) and _is_inspected(migration, source, node):
        return
    statement = _statement(source, node)
    if (
        statement is None
        or migration.wrapping_of(root) != "always"
        or may_ignore(migration)
        or not _is_embedding(migration, source, node.value)
        or not _has_unit(migration, root)
        or not _reaches_backward(source, statement, source.code(root))
    ):
        raise Blocked(source, node, PART_FORWARD())
    part = migration.text(source, node.value)
    migration.rewrite.insert_before(source, statement, [f"{part}.unshard()"])
    migration.step(source, node, TITLE)
    migration.note(NOTE, source, node, detail="FSDP1 reshards it after each call of its `forward`.")


def _is_whole_model(root: cst.BaseExpression, part: cst.BaseExpression) -> bool:
    """Whether a part is the inner module of the wrapped model, `model.module`."""
    return isinstance(part, cst.Attribute) and part.value is root and part.attr.value in WHOLE


def _is_inspected(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether all uses of a method only read its signature, directly or through a variable."""
    place = source.parent(node)
    if isinstance(place, cst.Arg):
        call = source.parent(place)
        return isinstance(call, cst.Call) and migration.symbol(call.func) in INSPECTING
    statement = source.parent(place) if isinstance(place, cst.AssignTarget) else place
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0].target
    home = home_of(source, target) if isinstance(target, cst.Name) else None
    if not isinstance(target, cst.Name) or home is None or statement.value is not node:
        return False
    uses = reads(source, home, target.value)
    return all(
        isinstance(source.parent(use), cst.Arg) and _is_inspected(migration, source, use)
        for use in uses
    )


def check_calls(migration: Migration, source: Source) -> None:
    """Block on `model.get_input_embeddings()(x)` if the model may not have run before.

    Embeddings that the interpreter knows have events in the traces.
    """
    for call in nodes(source):
        if not isinstance(call, cst.Call) or not _names_embedding(call.func):
            continue
        if any(isinstance(value, ModuleValue) for value in migration.values(call.func)):
            continue
        around = set(ancestors(source, call))
        function = function_around(source, call)
        if around & migration.blocks.gathered or _is_forward(function):
            continue
        part = call.func.func if isinstance(call.func, cst.Call) else call.func
        root = _root(migration, part)
        if root is not None and not _runs_before(source, call, source.code(root)):
            migration.blockers.append(Blocked(source, call, PART_FIRST()))


def _is_forward(function: cst.CSTNode) -> bool:
    """Whether a function is a module's own forward, which runs after the call of the root."""
    return isinstance(function, cst.FunctionDef) and function.name.value == "forward"


def _names_embedding(part: cst.BaseExpression) -> bool:
    if isinstance(part, cst.Call):
        part = part.func
        return isinstance(part, cst.Attribute) and part.attr.value == "get_input_embeddings"
    return isinstance(part, cst.Attribute) and part.attr.value in NAMES


def _runs_before(source: Source, call: cst.Call, model: str) -> bool:
    """Whether the same function certainly calls the model before a call."""
    inner: cst.CSTNode = call
    for outer in ancestors(source, call):
        if isinstance(outer, cst.FunctionDef):
            return False
        if isinstance(outer, cst.IndentedBlock | cst.Module):
            place = next(i for i, line in enumerate(outer.body) if line is inner)
            for line in _flat(outer.body[:place]):
                if isinstance(line, cst.SimpleStatementLine) and _calls(source, line, model):
                    return True
        inner = outer
    return False


def _calls(source: Source, line: cst.CSTNode, model: str) -> bool:
    return any(
        isinstance(part, cst.Call) and source.code(part.func) == model for part in descend(line)
    )


def _root(migration: Migration, part: cst.BaseExpression) -> cst.BaseExpression | None:
    """The wrapped model that contains a module, or None."""
    while isinstance(part, cst.Attribute | cst.Subscript):
        inner = isinstance(part, cst.Attribute) and part.attr.value == INNER
        part = part.value
        if inner or migration.wrapping_of(part):
            return part
    return None


def _statement(source: Source, node: cst.Attribute) -> cst.SimpleStatementLine | None:
    """The line that runs `model.part.forward(x)` exactly once, or None."""
    call = source.parent(node)
    if not isinstance(call, cst.Call) or call.func is not node:
        return None
    if any(not isinstance(x, cst.Name | cst.Attribute) for x in _chain(node.value)):
        return None
    for outer in ancestors(source, call):
        if isinstance(outer, cst.SimpleStatementLine):
            return outer if len(outer.body) == 1 else None
        if isinstance(outer, cst.Lambda | cst.BaseComp | cst.IfExp | cst.BooleanOperation):
            return None
    return None


def _chain(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    yield node
    while isinstance(node, cst.Attribute):
        node = node.value
        yield node


# The embedding ------------------------------------------------------------------------------------


def _is_embedding(migration: Migration, source: Source, part: cst.BaseExpression) -> bool:
    modules = [v for v in migration.values(part) if isinstance(v, ModuleValue)]
    if modules:
        return all(module.library_class == EMBEDDING for module in modules)
    named = isinstance(part, cst.Attribute) and part.attr.value in NAMES
    return named and any(
        full.partition(".")[0] == "transformers"
        for one in migration.sources
        for full in imported_names(one).values()
    )


def _has_unit(migration: Migration, root: cst.BaseExpression) -> bool:
    """Whether the policy of a model certainly wraps its embeddings as units."""
    ids = {v.id for v in migration.values(root) if isinstance(v, ModuleValue)}
    found: list[bool] = []
    for trace in migration.program.traces:
        for event in trace.of(Wrapped):
            if event.module not in ids:
                continue
            site = event.site
            call = site.node if isinstance(site, NodeSite) else None
            named = arguments(call, PARAMETERS)[0] if isinstance(call, cst.Call) else {}
            policy = named.get("auto_wrap_policy")
            found.append(policy is not None and _names_it(migration.values(policy.value)))
    return bool(found) and all(found)


def _names_it(policies: list[Value]) -> bool:
    classes = [_classes(policy) for policy in policies]
    return bool(classes) and all(
        isinstance(one, Items) and any(_is_class(item) for item in one.items) for one in classes
    )


def _classes(policy: Value) -> Value | None:
    if isinstance(policy, LibraryObject) and policy.name == f"{WRAP}.ModuleWrapPolicy":
        return policy.get("0", "module_classes")
    if isinstance(policy, Partial) and isinstance(policy.function, Symbol):
        if policy.function.name == f"{WRAP}.transformer_auto_wrap_policy":
            return policy.kwargs.get("transformer_layer_cls")
    return None


def _is_class(item: Value) -> bool:
    return isinstance(item, Symbol | Class) and item.name == EMBEDDING


# The backward pass --------------------------------------------------------------------------------


def _reaches_backward(source: Source, statement: cst.CSTNode, model: str) -> bool:
    """Whether the model always runs after a statement, followed by the backward pass."""
    called = False
    for line in _statements_after(source, statement):
        if any(isinstance(part, cst.Return | cst.Break | cst.Continue) for part in descend(line)):
            return False
        if not isinstance(line, cst.SimpleStatementLine):
            continue
        called = called or _calls(source, line, model)
        if any(_is_backward(part) for part in descend(line)):
            return called
    return False


def _is_backward(node: cst.CSTNode) -> bool:
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and func.attr.value == "backward"


def _statements_after(source: Source, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statements after a statement in the same iteration of its loop or function."""
    inner = statement
    for outer in ancestors(source, statement):
        if isinstance(outer, cst.IndentedBlock | cst.Module):
            place = next(i for i, line in enumerate(outer.body) if line is inner)
            yield from _flat(outer.body[place + 1 :])
        if not isinstance(outer, cst.IndentedBlock | cst.If | cst.Else | cst.With):
            return  # a loop or function ends here; other blocks may end early
        inner = outer


def _flat(lines: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """Statements, including those in `with` blocks."""
    for line in lines:
        if isinstance(line, cst.With):
            yield from _flat(line.body.body)
        else:
            yield line
