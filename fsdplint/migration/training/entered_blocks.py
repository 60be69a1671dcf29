"""The `with` blocks that run in a context that a call makes, also where a function returns it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.no_sync import left_early
from fsdplint.fixes.syntax import uses
from fsdplint.migration.analysis.components import full_program
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.enclosing import function_around

MAX_DEPTH = 3  # functions that return the context of one another


@dataclass(frozen=True)
class Entered:
    """A block that runs in a context.

    Attributes:
        model: the module of the context, as the block may name it.
        is_remote: whether another function makes the context.
    """

    source: Source
    block: cst.With
    model: cst.BaseExpression
    is_remote: bool = False


Blocks = list[Entered]


@dataclass(frozen=True)
class Contexts:
    """Finds the blocks that enter the contexts of a program."""

    migration: Migration

    def of_call(
        self, source: Source, call: cst.Call, model: cst.BaseExpression, depth: int = 0
    ) -> Blocks | None:
        """The blocks that may run in the context that a call makes; None if that is not known."""
        value: cst.CSTNode = call
        parent = source.parent(value)
        while isinstance(parent, cst.IfExp) and parent.test is not value:
            value, parent = parent, source.parent(parent)
        if isinstance(parent, cst.Return):
            return self._of_function(source, parent, model, depth)
        if isinstance(parent, cst.WithItem):
            if depth and parent.asname is not None:
                return _named_block(source, parent)
            blocks = _block(source, parent)
            generates = depth == 0 and plain_generator(source, parent) is not None
            if blocks is not None and depth < MAX_DEPTH and yields(blocks[0]) and not generates:
                return self._with_callers(source, blocks, model, depth)
        elif isinstance(parent, cst.Arg):
            blocks = _exit_stack(source, parent)
        elif isinstance(parent, cst.Lambda):
            if parent.params.params or parent.body is not value:
                return None
            blocks = _variable(source, parent, called=True)
        else:
            blocks = _variable(source, value, called=False)
        if blocks is None:
            return None
        return [Entered(source, block, model, depth > 0) for block in blocks]

    def takes_all(self, source: Source, block: cst.With) -> bool:
        """Whether each caller of the generator around a block takes all values, on every rank.

        Only loops and comprehensions over the call count.
        """
        function = plain_generator(source, block)
        if function is None:
            return False
        body = source.parent(function)
        is_method = body is not None and isinstance(source.parent(body), cst.ClassDef)
        calls = list(self._calls(function, is_method=is_method))
        return bool(calls) and all(call and _takes_all(other, call) for other, call in calls)

    def _with_callers(
        self, source: Source, blocks: list[cst.With], model: cst.BaseExpression, depth: int
    ) -> Blocks | None:
        """A block that yields, and the blocks that run at this point."""
        own = [Entered(source, block, model, depth > 0) for block in blocks]
        others = self._of_function(source, blocks[0], model, depth)
        return None if others is None else [*own, *others]

    def _of_function(
        self, source: Source, node: cst.CSTNode, model: cst.BaseExpression, depth: int
    ) -> Blocks | None:
        """The blocks that enter what the function around a node returns or yields."""
        function = function_around(source, node)
        if not isinstance(function, cst.FunctionDef) or depth >= MAX_DEPTH:
            return None
        if not all(map(_keeps_result, function.decorators)):
            return None
        found: Blocks = []
        body = source.parent(function)
        is_method = body is not None and isinstance(source.parent(body), cst.ClassDef)
        for other, call in self._calls(function, is_method=is_method):
            if call is None:
                return None
            named = _argument(function, call, model)
            own = named if named is not None else self._same_model(source, other, call, model)
            blocks = self.of_call(other, call, own, depth + 1)
            if blocks is None:
                return None
            found += blocks
        return found or None

    def _calls(
        self, function: cst.FunctionDef, *, is_method: bool
    ) -> Iterator[tuple[Source, cst.Call | None]]:
        """The calls of all functions with the name of one; None stands for another use."""
        name = function.name.value
        for source in full_program(self.migration.program).sources.values():
            for node in source.descend(source.tree) if name in source.text else ():
                if isinstance(node, cst.SimpleString) and node.evaluated_value == name:
                    yield source, None  # perhaps of `getattr`
                if not isinstance(node, cst.Name) or node.value != name:
                    continue
                place = source.parent(node)
                if isinstance(place, cst.FunctionDef | cst.ImportAlias):
                    continue
                if isinstance(place, cst.Arg) and place.keyword is node:
                    continue
                is_attribute = isinstance(place, cst.Attribute) and place.attr is node
                if is_method and not is_attribute:
                    continue  # a variable
                if is_attribute and place is not None:
                    node, place = place, source.parent(place)
                is_called = isinstance(place, cst.Call) and place.func is node
                yield source, place if isinstance(place, cst.Call) and is_called else None

    def _same_model(
        self, source: Source, other: Source, call: cst.Call, model: cst.BaseExpression
    ) -> cst.BaseExpression:
        """The module of a context as a caller may name it, if no argument gives it."""
        of_self = isinstance(call.func, cst.Attribute) and is_constant(call.func.value, "self")
        return model if of_self and other is source else call


def _argument(
    function: cst.FunctionDef, call: cst.Call, model: cst.BaseExpression
) -> cst.BaseExpression | None:
    """What a call gives for the parameter that is the module of the context."""
    names = [one.name.value for one in function.params.params]
    is_method = names[:1] in (["self"], ["cls"]) and isinstance(call.func, cst.Attribute)
    named, _ = arguments(call, names[1:] if is_method else names)
    arg = named.get(model.value) if isinstance(model, cst.Name) else None
    return arg.value if arg is not None else None


def _keeps_result(decorator: cst.Decorator) -> bool:
    """Whether a caller gets the context that the decorated function returns or yields in."""
    name = decorator.decorator
    last = name.attr if isinstance(name, cst.Attribute) else name
    return is_constant(last, "contextmanager", "staticmethod", "classmethod")


def plain_generator(source: Source, node: cst.CSTNode) -> cst.FunctionDef | None:
    """The generator around a node that is no context manager, so that its callers loop over it."""
    function = function_around(source, node)
    if not isinstance(function, cst.FunctionDef) or function.decorators or function.asynchronous:
        return None
    return function if yields(function) else None


def _takes_all(source: Source, call: cst.Call) -> bool:
    """Whether a loop or comprehension over a call has no way out before the last value."""
    loop = source.parent(call)
    if isinstance(loop, cst.CompFor):
        inside = source.parent(loop)
        return loop.iter is call and not isinstance(inside, cst.GeneratorExp)
    return isinstance(loop, cst.For) and loop.iter is call and not left_early(loop.body)


def yields(block: cst.With | cst.FunctionDef) -> bool:
    """Whether the body of a block yields."""
    stack: list[cst.CSTNode] = [block.body]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Yield):
            return True
        if not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
            stack.extend(node.children)
    return False


def _named_block(source: Source, item: cst.WithItem) -> Blocks | None:
    """The block of `with gather(model) as inner:`, where the generator yields a module."""
    block = source.parent(item)
    name = item.asname.name if item.asname is not None else None
    if not isinstance(block, cst.With) or block.asynchronous or not isinstance(name, cst.Name):
        return None
    return [Entered(source, block, name, is_remote=True)]


def _block(source: Source, item: cst.WithItem) -> list[cst.With] | None:
    block = source.parent(item)
    if not isinstance(block, cst.With) or block.asynchronous or item.asname is not None:
        return None
    return [block]


def _exit_stack(source: Source, arg: cst.Arg) -> list[cst.With] | None:
    """The block of `with ExitStack() as stack:` whose stack enters the context."""
    call = source.parent(arg)
    func = call.func if isinstance(call, cst.Call) else None
    if not isinstance(func, cst.Attribute) or func.attr.value != "enter_context":
        return None
    node: cst.CSTNode | None = call
    while node is not None and not isinstance(node, cst.FunctionDef | cst.Lambda):
        for item in node.items if isinstance(node, cst.With) else ():
            name = item.asname.name if item.asname is not None else None
            if isinstance(name, cst.Name) and name.value == source.code(func.value):
                assert isinstance(node, cst.With)
                return [node]
        node = source.parent(node)
    return None


def _variable(source: Source, value: cst.CSTNode, *, called: bool) -> list[cst.With] | None:
    """The blocks that a variable of a function enters, as `with name:` or `with name():`."""
    assign = source.parent(value)
    if not isinstance(assign, cst.Assign) or assign.value is not value or len(assign.targets) != 1:
        return None
    target = assign.targets[0].target
    if not isinstance(target, cst.Name):
        return None
    reads = [
        use
        for use in uses(function_around(source, assign), target.value)
        if not isinstance(source.parent(use), cst.AssignTarget)
    ]
    return _headed_blocks(source, reads, called=called)


def _headed_blocks(source: Source, reads: list[cst.Name], *, called: bool) -> list[cst.With] | None:
    """The blocks whose heads are these reads, each with a call if `called`."""
    found: list[cst.With] = []
    for read in reads:
        head: cst.CSTNode | None = read
        if called:
            head = source.parent(read)
            if not isinstance(head, cst.Call) or head.func is not read:
                return None
        item = source.parent(head) if head is not None else None
        block = _block(source, item) if isinstance(item, cst.WithItem) else None
        if block is None:
            return None
        found += block
    return found or None
