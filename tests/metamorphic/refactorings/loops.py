"""Other spellings of loops."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import Statement, block, bound, function, has_own, statements, text_of, with_head


def _loops(
    module: cst.Module,
    change: Callable[[cst.For, int], list[cst.BaseStatement] | None],
    head: str = "",
) -> cst.Module | None:
    class Loops(cst.CSTTransformer):
        count = 0

        def leave_For(
            self, original_node: cst.For, updated_node: cst.For
        ) -> cst.BaseStatement | cst.FlattenSentinel:  # type: ignore[type-arg]
            plain = updated_node.orelse is None and updated_node.asynchronous is None
            if not plain or not isinstance(updated_node.body, cst.IndentedBlock):
                return updated_node
            self.count += 1
            changed = change(updated_node, self.count)
            return updated_node if changed is None else cst.FlattenSentinel(changed)

    changed = module.visit(Loops())
    if changed.code == module.code:
        return None
    return with_head(changed, head) if head else changed


def _over(node: cst.For, iterable: str) -> list[cst.BaseStatement]:
    return [node.with_changes(iter=cst.parse_expression(iterable))]


@refactoring()
def loop_over_generator(module: cst.Module) -> cst.Module | None:
    """`for x in items` becomes `for x in one_by_one(items)` with a generator."""
    helper = "def one_by_one(items):\n    for item in items:\n        yield item\n\n\n"
    return _loops(module, lambda n, _: _over(n, f"one_by_one({text_of([n.iter])})"), helper)


@refactoring()
def loop_over_iterator_class(module: cst.Module) -> cst.Module | None:
    """`for x in items` becomes a loop over an object of a class with `__iter__`."""
    helper = (
        "class Batches:\n    def __init__(self, items):\n        self.items = items\n\n"
        "    def __iter__(self):\n        return iter(self.items)\n\n\n"
    )
    return _loops(module, lambda n, _: _over(n, f"Batches({text_of([n.iter])})"), helper)


@refactoring()
def enumerated_loop(module: cst.Module) -> cst.Module | None:
    """`for x in items` becomes `for turn, x in enumerate(items)`."""

    def change(node: cst.For, count: int) -> list[cst.BaseStatement]:
        target = text_of([node.target])
        if isinstance(node.target, cst.Tuple) and not node.target.lpar:
            target = f"({target})"
        new = statements(
            f"for turn_{count}, {target} in enumerate({text_of([node.iter])}):\n    pass\n"
        )[0]
        return [new.with_changes(body=node.body, leading_lines=node.leading_lines)]

    return _loops(module, change)


@refactoring()
def loop_by_next(module: cst.Module) -> cst.Module | None:
    """`for x in items` becomes `while True` with `next(iterator)` and `StopIteration`."""

    def change(node: cst.For, count: int) -> list[cst.BaseStatement]:
        lines = (
            f"try:\n    {text_of([node.target])} = next(iterator_{count})\n"
            "except StopIteration:\n    break\n"
        )
        loop = statements(
            f"iterator_{count} = iter({text_of([node.iter])})\nwhile True:\n    pass\n"
        )
        body = block([*statements(lines), *node.body.body])  # type: ignore[list-item]
        return [loop[0], loop[1].with_changes(body=body)]

    return _loops(module, change)


@refactoring()
def loop_by_counter(module: cst.Module) -> cst.Module | None:
    """`for i in range(n)` becomes `while i < n` with a counter."""

    def change(node: cst.For, count: int) -> list[cst.BaseStatement] | None:
        is_range = m.matches(node.iter, m.Call(m.Name("range"), [m.Arg(keyword=None, star="")]))
        if (
            not is_range
            or m.findall(node.body, m.Continue())
            or not isinstance(node.target, cst.Name)
        ):
            return None
        assert isinstance(node.iter, cst.Call)
        bound_text, name = text_of([node.iter.args[0].value]), node.target.value
        lines = f"counter_{count} = 0\nwhile counter_{count} < {bound_text}:\n    pass\n"
        loop = statements(lines)
        first, last = f"{name} = counter_{count}\n", f"counter_{count} += 1\n"
        body = [*statements(first), *node.body.body, *statements(last)]
        return [loop[0], loop[1].with_changes(body=block(body))]  # type: ignore[arg-type]

    return _loops(module, change)


@refactoring()
def loop_over_list(module: cst.Module) -> cst.Module | None:
    """`for i in range(n)` becomes a loop over the list of its numbers, in a variable."""

    def change(node: cst.For, count: int) -> list[cst.BaseStatement] | None:
        if not m.matches(node.iter, m.Call(m.Name("range"))):
            return None
        line = statements(f"turns_{count} = list({text_of([node.iter])})\n")
        return [*line, *_over(node, f"turns_{count}")]

    return _loops(module, change)


@refactoring(is_of_script=True)
@of_main
def turn_in_function(script: Script) -> cst.Module | None:
    """The body of each loop of `main` becomes a function inside of `main`."""
    body: list[Statement] = []
    count = 0
    if has_own(script.body, cst.Global, cst.Nonlocal):
        return None
    for index, statement in enumerate(script.body):
        if isinstance(statement, cst.For) and isinstance(statement.body, cst.IndentedBlock):
            own = list(statement.body.body)
            leaves = has_own(own, cst.Break, cst.Continue, cst.Return, cst.Yield)  # type: ignore[arg-type]
            names = [n.value for n in m.findall(statement.target, m.Name())]  # type: ignore[attr-defined]
            if not leaves and statement.orelse is None:
                count += 1
                outer = set(bound(script.body[:index])) | set(bound(script.body[index + 1 :]))
                inner = set(bound(own))  # type: ignore[arg-type]
                if inner - outer:  # what is bound in the loop alone is read after it by nobody
                    later = cst.Module(list(script.body[index + 1 :])).code
                    if any(name in later for name in inner - outer):
                        return None
                shared = sorted(inner & outer - set(names))
                head = statements(f"nonlocal {', '.join(shared)}\n") if shared else []
                turn = function(f"turn_{count}", [*head, *own], ", ".join(names))  # type: ignore[list-item]
                declared = [n for n in shared if n not in bound(script.body[:index])]
                if declared:
                    return None
                call = statements(f"turn_{count}({', '.join(names)})\n")
                body.extend(
                    [turn.with_changes(leading_lines=[]), statement.with_changes(body=block(call))]
                )
                continue
        body.append(statement)
    return script.with_body(body) if count else None
