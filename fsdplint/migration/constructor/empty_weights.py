"""The function of `param_init_fn` that only gives a module memory, and perhaps another type."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.interpreter.values import Const, Function
from fsdplint.migration.analysis.called_functions import called_function, local_function
from fsdplint.migration.analysis.variables import definition_at, definitions, is_exported
from fsdplint.migration.constructor import reading
from fsdplint.migration.context import Migration, expression
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.bindings import Scope, bindings_of
from fsdplint.syntax.layout import descend
from fsdplint.syntax.qualified_names import symbols_in

TORCH = "torch"
WITHOUT_EFFECT = {"torch.cuda.empty_cache"}
DTYPE = re.compile(r"dtype\Z|\Atorch\.(b?float\d*|half|double)\Z")


@dataclass(frozen=True)
class EmptyWeights:
    """What a `param_init_fn` that only gives memory does.

    Attributes:
        device: the device on which it allocates, as text for the call.
        dtype: the type to which it casts, as text for the call, or "".
        definition: the function, if only the call names it.
        is_variable: whether the argument is a variable that the program assigns.
    """

    device: str
    dtype: str = ""
    definition: cst.FunctionDef | None = None
    is_variable: bool = False


def empty_weights(
    migration: Migration, source: Source, at: cst.CSTNode, argument: cst.BaseExpression
) -> EmptyWeights | None:
    """What a `param_init_fn` does, if it only allocates and casts; None for other functions.

    A function may test its rank: the migrated program asks which parameters are on the meta device.
    Ranks that have weights may get None instead.
    """
    value = _assigned_function(source, argument)
    function = value
    if isinstance(function, cst.IfExp):
        function = function.body if is_constant(function.orelse, "None") else function.orelse
    is_variable = value is not argument
    target = reading.to_empty_device(function)
    if target is not None:
        return EmptyWeights(expression(migration, source, target), is_variable=is_variable)
    found = called_function(migration.program, source, function)
    if found is None:
        local = local_function(source, function)
        found = (source, local) if local is not None else None
    if found is None:
        return _held_in_runs(migration, source, at, argument)
    home, definition = found
    body = _Body(home, definition)
    if not body.only_allocates():
        return None
    device = _written_elsewhere(migration, source, at, home, body.devices[0])
    dtypes = [_written_elsewhere(migration, source, at, home, one) for one in body.dtypes]
    dtype = dtypes[0] if dtypes else ""
    if device is None or dtype is None:
        return None
    once = home is source and _is_read_once(migration, definition)
    return EmptyWeights(device, dtype, definition if once else None, is_variable)


def _held_in_runs(
    migration: Migration, source: Source, at: cst.CSTNode, argument: cst.BaseExpression
) -> EmptyWeights | None:
    """What the function does that an item of a dict holds in all runs, beside None."""
    values = migration.values(argument)
    functions = {one.node: one for one in values if isinstance(one, Function)}
    others = [one for one in values if not isinstance(one, Function)]
    if len(functions) != 1 or any(
        one.value is not None for one in others if isinstance(one, Const)
    ):
        return None
    if not all(isinstance(one, Const) for one in others):
        return None
    ((node, function),) = functions.items()
    home = function.site.source
    if isinstance(node, cst.Lambda):
        target = reading.to_empty_device(node)
        set_by = [target] if target is not None else []
    else:
        body = _Body(home, node)
        set_by = [*body.devices, *body.dtypes] if body.only_allocates() else []
    texts = [_written_elsewhere(migration, source, at, home, one) for one in set_by]
    if not texts or None in texts:
        return None
    device, dtype, *_ = [*(one or "" for one in texts), ""]
    return EmptyWeights(device, dtype)


def _assigned_function(source: Source, argument: cst.BaseExpression) -> cst.BaseExpression:
    """The only value of a variable beside None; any other expression itself."""
    found = definitions(source, argument) if isinstance(argument, cst.Name) else None
    functions = [item.value for item in found or () if not is_constant(item.value, "None")]
    return functions[0] if len(functions) == 1 else argument


def delete_function(
    migration: Migration, source: Source, name: cst.BaseExpression, function: cst.FunctionDef
) -> None:
    """Delete a function that nothing calls any more, and the assignments of None beside it.

    They stay where a block would become empty.
    """
    statements: list[cst.CSTNode] = [function]
    if isinstance(name, cst.Name):
        scope = _owner(source, name, name.value)
        for node in scope.others.get(name.value, ()) if scope is not None else ():
            assigned = definition_at(source, node)
            statements += [assigned.statement] if assigned is not None else []
    if any(_is_alone(source, one) for one in statements):
        return
    for one in statements:
        migration.delete_statement(source, one)
    migration.step(source, function, "Remove a function that nothing uses")


def _is_alone(source: Source, statement: cst.CSTNode) -> bool:
    """Whether a statement is the only one of its block."""
    line = statement if isinstance(statement, cst.FunctionDef) else source.parent(statement)
    block = source.parent(line) if line is not None else None
    return isinstance(block, cst.IndentedBlock) and len(block.body) == 1


def _is_read_once(migration: Migration, function: cst.FunctionDef) -> bool:
    """Whether a single place of the program reads the name of a function."""
    own = set(descend(function))
    name = function.name.value
    mentions = (
        node
        for source in migration.program.sources.values()
        if name in source.text
        for node in source.descend(source.tree)
        if isinstance(node, cst.Name) and node.value == name and node not in own
        if not _is_keyword_or_target(source, node)
    )
    if is_exported(migration.program.sources.values(), function):
        return False
    return sum(1 for _ in mentions) == 1


def _is_keyword_or_target(source: Source, node: cst.Name) -> bool:
    """Whether a name is that of an argument, or gets a value."""
    parent = source.parent(node)
    if isinstance(parent, cst.Arg):
        return parent.keyword is node
    return isinstance(parent, cst.AssignTarget)


@dataclass
class _Body:
    """The body of a function that gets a module.

    Attributes:
        devices: the devices of its calls of `to_empty`.
        dtypes: the types of its casts.
    """

    source: Source
    function: cst.FunctionDef
    devices: list[cst.BaseExpression] = field(default_factory=list)
    dtypes: list[cst.BaseExpression] = field(default_factory=list)

    def only_allocates(self) -> bool:
        """Whether the function does nothing but one `to_empty` and at most one cast."""
        function = self.function
        parameters = function.params.params
        if len(parameters) != 1 or function.decorators or function.asynchronous is not None:
            return False
        only = all(self._is_allowed(part) for part in function.body.body)
        return only and len(self.devices) == 1 and len(self.dtypes) <= 1

    def _is_allowed(self, node: cst.CSTNode) -> bool:
        """Whether a statement allocates or casts the module, or has no effect."""
        match node:
            case cst.SimpleStatementLine():
                return all(self._is_allowed(part) for part in node.body)
            case cst.If():
                parts = [*node.body.body, *([node.orelse] if node.orelse is not None else [])]
                casts = len(self.dtypes)
                # A test of the rank may choose to allocate; one may not choose to cast.
                return all(self._is_allowed(part) for part in parts) and len(self.dtypes) == casts
            case cst.Else():
                return all(self._is_allowed(part) for part in node.body.body)
            case cst.Assign():
                targets = [item.target for item in node.targets]
                return len(targets) == 1 and self._is_module(targets[0]) and self._sets(node.value)
            case cst.Return():
                value = node.value
                return value is None or self._is_module(value) or self._sets(value)
            case cst.Expr():
                if isinstance(node.value, cst.SimpleString):
                    return True
                if isinstance(node.value, cst.Call):
                    symbol = symbols_in(self.source).get(node.value.func)
                    return symbol in WITHOUT_EFFECT or self._sets(node.value)
            case cst.Pass():
                return True
        return False

    def _is_module(self, node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name) and node.value == self._module

    @property
    def _module(self) -> str:
        return self.function.params.params[0].name.value

    def _sets(self, node: cst.BaseExpression) -> bool:
        """Whether a node is `module.to_empty(device=...)` or `module.to(dtype)`; notes which."""
        device = reading.device_of_to_empty(node, self._module)
        if device is not None:
            self.devices.append(device)
            return True
        dtype = self._cast(node)
        if dtype is not None:
            self.dtypes.append(dtype)
        return dtype is not None

    def _cast(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """The type in `module.to(dtype)`; None for other calls, also for a move to a device."""
        if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
            return None
        if node.func.attr.value != "to" or not self._is_module(node.func.value):
            return None
        if len(node.args) != 1:
            return None
        arg = node.args[0]
        named = arg.keyword.value if arg.keyword is not None else ""
        text = symbols_in(self.source).get(arg.value) or self.source.code(arg.value)
        return arg.value if named == "dtype" or (not named and DTYPE.search(text)) else None


def _written_elsewhere(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    home: Source,
    device: cst.BaseExpression,
) -> str | None:
    """The text of a device for another place; None if it has names that mean something else there."""
    for part in descend(device):
        if isinstance(part, cst.Name) and _is_read(home, part):
            owner = _owner(home, part, part.value)
            if owner is None:
                return None
            if any(i.full == TORCH for i in owner.imports if i.local == part.value):
                if part.value != migration.torch(source, at):
                    return None
            elif home is not source or owner is not _owner(source, at, part.value):
                return None
    return home.code(device)


def _owner(source: Source, at: cst.CSTNode, name: str) -> Scope | None:
    """The scope that binds a name at a place."""
    bindings = bindings_of(source)
    return bindings.owner(bindings.scope_at(at), name)


def _is_read(source: Source, name: cst.Name) -> bool:
    """Whether a name is read as a variable: neither an attribute nor a keyword."""
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute):
        return parent.value is name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)
