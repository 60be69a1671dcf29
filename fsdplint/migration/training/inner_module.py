"""`model.module` of FSDP1's wrapper, which is the model itself in FSDP2, and questions about it.

In other configurations of the program another wrapper may have the attribute. Then the code asks
for the class of FSDP2, unless the code around it asks for the attribute already.
"""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import ModuleValue
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.training import MODULE_ASSIGNED, MODULE_OF_SOMETIMES_WRAPPED
from fsdplint.migration.context import Migration, is_fsdp1, nodes
from fsdplint.migration.names import FSDP
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors
from fsdplint.syntax.layout import statement_of

NAME = "module"
DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
TITLE = "Use the model itself"
# Methods of models that other parts of the migration rewrite.
REWRITTEN = re.compile(
    r"\.(forward|apply|no_sync|clip_grad_norm_|\w*(state_dict|parameters|modules))\b"
)


def rewrite_inner_module(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite `model.module` to `model`, where FSDP2 shards the model.

    Raises:
        Blocked: the code assigns the attribute, or what has it cannot be asked for its class.
    """
    choice = _isinstance_choice(migration, source, node)
    if choice is not None:
        migration.account_for(source, choice.test)
        migration.substitute(source, choice, migration.text(source, choice.orelse))
        migration.step(source, node, TITLE)
        return
    if isinstance(source.parent(node), cst.AssignTarget):
        raise Blocked(source, node, MODULE_ASSIGNED())
    # Behind a question for the attribute, the model is always one that has it.
    model = _tested_model(source, node) or node.value
    if _is_always_sharded(migration, source, model):
        migration.substitute(source, node, migration.text(source, node.value))
        migration.step(source, node, TITLE)
        return
    _rewrite_optional_inner(migration, source, node)


def _rewrite_optional_inner(migration: Migration, source: Source, node: cst.Attribute) -> None:
    """Rewrite the `.module` of what FSDP1 wraps in some configurations only.

    Raises:
        Blocked: what has it cannot be asked for its class.
    """
    model = migration.text(source, node.value)
    others = [v for v in migration.values(node.value) if not is_fsdp1(v)]
    own = _has_own(migration)
    if not own and _tested_model(source, node) is not None:
        return  # FSDP2's models have no `.module`
    if not is_repeatable(node.value) or any(map(_is_compiled, migration.values(node.value))):
        raise Blocked(source, node, MODULE_OF_SOMETIMES_WRAPPED())
    if not own and all(isinstance(v, ModuleValue) and v.wrapper == "ddp" for v in others):
        text = f"{model}.module if hasattr({model}, {string_literal(source, NAME)}) else {model}"
    else:
        kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
        text = f"{model} if isinstance({model}, {kind}) else {model}.module"
    parent = source.parent(node)
    plain = isinstance(parent, cst.Assign | cst.Return) and parent.value is node
    migration.substitute(source, node, text if plain else f"({text})")
    migration.step(source, node, "Use the model itself where nothing is around it")


def answer_question(migration: Migration, source: Source, node: cst.Call) -> None:
    """Ask for FSDP2's class where the code asks by `hasattr` whether a model has a `.module`.

    A choice between the attribute and the model stays: it takes the model.
    """
    if not _asks_for_module(node) or node in migration.uncalled_nodes:
        return
    model = node.args[0].value
    if not migration.wrapping_of(model) or any(map(_is_compiled, migration.values(model))):
        return
    if _choice_of(source, node, source.code(model)):
        return
    text = migration.text(source, model)
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", node)
    asked = f"isinstance({text}, {kind})"
    if not _is_always_sharded(migration, source, model):
        asked = f"({asked} or {source.code(node)})"
        parent = source.parent(node)
        if isinstance(parent, cst.If | cst.While) and parent.test is node:
            asked = asked[1:-1]
    migration.substitute(source, node, asked)
    migration.step(source, node, "Ask for FSDPModule")


def _asks_for_module(node: cst.Call) -> bool:
    """Whether a call is `hasattr(model, "module")`."""
    if not is_constant(node.func, "hasattr") or len(node.args) != 2:
        return False
    name = node.args[1].value
    return isinstance(name, cst.SimpleString) and name.evaluated_value == NAME


def _is_compiled(value: object) -> bool:
    """Whether a value is a compiled model, which FSDP2's class is not."""
    return isinstance(value, ModuleValue) and value.wrapper == "compile"


def _has_own(migration: Migration) -> bool:
    """Whether a class of the program sets an attribute `module`."""
    sources = migration.program.sources.values()
    return any(re.search(r"\bself\.module\s*[:=]", source.text) for source in sources)


# Other wrappers -----------------------------------------------------------------------------------


def _is_always_sharded(migration: Migration, source: Source, model: cst.BaseExpression) -> bool:
    """Whether a model is FSDP1's here in all configurations, also in those that no run has tried.

    Where the same statements wrap it by DDP otherwise, a test around the place has to say so.
    """
    if migration.wrapping_of(model) != "always":
        return False
    wrappers = [
        (other, source_of_call)
        for source_of_call in migration.sources
        for other in nodes(source_of_call)
        if isinstance(other, cst.Call) and migration.fsdp1(other.func) == FSDP
    ]
    tested = _tested_names(source, model)
    return all(
        tested & _tested_names(other, call)
        for call, other in wrappers
        if _is_ddp_otherwise(migration, other, call)
    )


def _is_ddp_otherwise(migration: Migration, source: Source, call: cst.Call) -> bool:
    """Whether a statement of the same file gives the result of DDP to what gets that of a call."""
    target = _receiver(source, call)
    return any(
        isinstance(other, cst.Call)
        and migration.symbol(other.func) in DDP
        and _receiver(source, other) == target
        for other in nodes(source)
    )


def _receiver(source: Source, call: cst.Call) -> str:
    """The text of what the statement of a call assigns to."""
    statement = statement_of(source, call)
    if isinstance(statement, cst.Assign):
        return source.code(statement.targets[0].target)
    return "return" if isinstance(statement, cst.Return) else ""


def _tested_names(source: Source, node: cst.CSTNode) -> set[str]:
    """The names in the tests around a node that have to be true there."""
    names: set[str] = set()
    inner = node
    for around in ancestors(source, node):
        if isinstance(around, cst.If | cst.IfExp) and inner is around.body:
            names |= {one for part in source.descend(around.test) if (one := _leaf(source, part))}
        inner = around
    return names - {"isinstance"}


def _leaf(source: Source, node: cst.CSTNode) -> str:
    """The name of a variable, or the last one of a chain of attributes; else ""."""
    if not isinstance(node, cst.Name):
        return ""
    parent = source.parent(node)
    whole = parent if isinstance(parent, cst.Attribute) and parent.attr is node else node
    outer = source.parent(whole)
    return "" if isinstance(outer, cst.Attribute) and outer.value is whole else node.value


# Choices ------------------------------------------------------------------------------------------


def _tested_model(source: Source, node: cst.Attribute) -> cst.BaseExpression | None:
    """What the choice asks for the attribute that a `.module` is in, if it is between it and the
    model."""
    model = source.code(node.value)
    around = source.parent(node)
    while around is not None and not isinstance(around, cst.IfExp | cst.If | cst.While):
        around = source.parent(around)
    if around is None or not isinstance(around.test, cst.Call):
        return None
    tested = around.test.args[0].value if _asks_for_module(around.test) else None
    asks = tested is not None and source.code(tested) == model
    return tested if asks and _choice_of(source, around.test, model) else None


def _choice_of(source: Source, question: cst.Call, model: str) -> bool:
    """Whether a question only chooses between the attribute of a model and the model itself."""
    choice = source.parent(question)
    inner = f"{model}.{NAME}"
    if isinstance(choice, cst.IfExp) and choice.test is question:
        return (source.code(choice.body), source.code(choice.orelse)) == (inner, model)
    if not isinstance(choice, cst.If | cst.While) or choice.test is not question:
        return False
    target, value = _assigned(source, choice.body)
    if value != inner:
        return False
    if isinstance(choice, cst.If) and choice.orelse is not None:
        return isinstance(choice.orelse, cst.Else) and (target, model) == _assigned(
            source, choice.orelse.body
        )
    if isinstance(choice, cst.While) and choice.orelse is not None:
        return False
    return target == model or (
        isinstance(choice, cst.If) and _assigned_before(source, choice) == (target, model)
    )


def _assigned(source: Source, block: cst.CSTNode | None) -> tuple[str, str]:
    """The target and the value of the only statement of a block, an assignment; else empty texts."""
    if not isinstance(block, cst.IndentedBlock) or len(block.body) != 1:
        return "", ""
    return _assignment(source, block.body[0])


def _assigned_before(source: Source, statement: cst.If) -> tuple[str, str]:
    """The target and the value of the assignment directly above a statement."""
    block = source.parent(statement)
    body = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    at = next((i for i, one in enumerate(body) if one is statement), 0)
    return _assignment(source, body[at - 1]) if at else ("", "")


def _assignment(source: Source, line: cst.CSTNode) -> tuple[str, str]:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return "", ""
    small = line.body[0]
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return "", ""
    return source.code(small.targets[0].target), source.code(small.value)


def _isinstance_choice(
    migration: Migration, source: Source, node: cst.Attribute
) -> cst.IfExp | None:
    """The expression `x.module if isinstance(x, FSDP) else x` around a node, which is `x` in FSDP2.

    Both arms may go on in the same way: `x.module.head() if isinstance(x, FSDP) else x.head()`.
    """
    whole: cst.BaseExpression = node
    parent = source.parent(whole)
    while (isinstance(parent, cst.Attribute | cst.Subscript) and parent.value is whole) or (
        isinstance(parent, cst.Call) and parent.func is whole
    ):
        whole, parent = parent, source.parent(parent)
    if not isinstance(parent, cst.IfExp) or parent.body is not whole:
        return None
    test = parent.test
    model = source.code(node.value)
    rest = source.code(whole).removeprefix(source.code(node))
    if REWRITTEN.search(rest):
        return None
    if (
        isinstance(test, cst.Call)
        and isinstance(test.func, cst.Name)
        and test.func.value == "isinstance"
        and len(test.args) == 2
        and source.code(test.args[0].value) == model
        and migration.fsdp1(test.args[1].value) == FSDP
        and source.code(parent.orelse) == model + rest
    ):
        return parent
    return None
