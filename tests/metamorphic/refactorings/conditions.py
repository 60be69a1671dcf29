"""Other spellings of tests and of what stands under them."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from syntax_tools import block, expression, statements, text_of, with_head


def _tests(
    module: cst.Module, change: Callable[[cst.If, int], cst.BaseStatement | list[cst.BaseStatement]]
) -> cst.Module | None:
    class Tests(cst.CSTTransformer):
        def __init__(self) -> None:
            self.count = 0
            self.chained: set[cst.CSTNode] = set()

        def visit_If(self, node: cst.If) -> None:
            if isinstance(node.orelse, cst.If):
                self.chained.add(node.orelse)

        def leave_If(
            self, original_node: cst.If, updated_node: cst.If
        ) -> cst.BaseStatement | cst.FlattenSentinel:  # type: ignore[type-arg]
            guard = "__name__" in text_of([updated_node.test])
            if (
                original_node in self.chained
                or guard
                or m.findall(updated_node.test, m.NamedExpr())
            ):
                return updated_node
            self.count += 1
            changed = change(updated_node, self.count)
            return cst.FlattenSentinel(changed) if isinstance(changed, list) else changed

    changed = module.visit(Tests())
    return None if changed.code == module.code else changed


@refactoring()
def negated_test(module: cst.Module) -> cst.Module | None:
    """`if a: X else: Y` becomes `if not (a): Y else: X`."""

    def change(node: cst.If, _: int) -> cst.BaseStatement:
        if isinstance(node.orelse, cst.If):
            return node
        other = block([]) if node.orelse is None else node.orelse.body
        test = expression(f"not ({text_of([node.test])})")
        return node.with_changes(test=test, body=other, orelse=cst.Else(node.body))

    return _tests(module, change)


@refactoring()
def test_in_variable(module: cst.Module) -> cst.Module | None:
    """`if a:` becomes `is_true = a` and `if is_true:`."""

    def change(node: cst.If, count: int) -> list[cst.BaseStatement]:
        line = statements(f"is_true_{count} = {text_of([node.test])}\n")
        return [*line, node.with_changes(test=cst.Name(f"is_true_{count}"))]

    return _tests(module, change)


@refactoring()
def test_in_function(module: cst.Module) -> cst.Module | None:
    """`if a:` becomes a function that returns it, and `if is_true():`."""

    def change(node: cst.If, count: int) -> list[cst.BaseStatement]:
        line = statements(f"def is_true_{count}():\n    return {text_of([node.test])}\n")
        return [*line, node.with_changes(test=expression(f"is_true_{count}()"))]

    return _tests(module, change)


@refactoring()
def test_for_object(module: cst.Module) -> cst.Module | None:
    """`if a:` becomes an object that there is only where it holds, and `if one is not None:`."""

    def change(node: cst.If, count: int) -> list[cst.BaseStatement]:
        line = statements(f"present_{count} = Presence() if {text_of([node.test])} else None\n")
        return [*line, node.with_changes(test=expression(f"present_{count} is not None"))]

    changed = _tests(module, change)
    return with_head(changed, "class Presence:\n    pass\n") if changed is not None else None


@refactoring()
def loop_over_objects(module: cst.Module) -> cst.Module | None:
    """`if rank == 0: X` becomes a list in which only these ranks have an object, and a loop of X."""

    def change(node: cst.If, count: int) -> cst.BaseStatement | list[cst.BaseStatement]:
        of_rank = "rank" in text_of([node.test])
        if not of_rank or node.orelse is not None or m.findall(node.body, m.Break() | m.Continue()):
            return node
        made = statements(
            f"present_{count} = []\nif {text_of([node.test])}:\n    present_{count}.append(Presence())\n"
            f"for one_{count} in present_{count}:\n    pass\n"
        )
        loop = made[-1]
        assert isinstance(loop, cst.For)
        return [*made[:-1], loop.with_changes(body=node.body)]

    changed = _tests(module, change)
    return with_head(changed, "class Presence:\n    pass\n") if changed is not None else None


@refactoring()
def test_as_match(module: cst.Module) -> cst.Module | None:
    """`if a: X else: Y` becomes `match bool(a): case True: X`, `case _: Y`."""

    def change(node: cst.If, _: int) -> cst.BaseStatement:
        if isinstance(node.orelse, cst.If):
            return node
        made = statements(
            f"match bool({text_of([node.test])}):\n    case True:\n        pass\n    case _:\n        pass\n"
        )[0]
        assert isinstance(made, cst.Match)
        other = block([]) if node.orelse is None else node.orelse.body
        first, second = made.cases
        return made.with_changes(
            cases=[first.with_changes(body=node.body), second.with_changes(body=other)]
        )

    return _tests(module, change)


@refactoring()
def test_as_while(module: cst.Module) -> cst.Module | None:
    """`if a: X` becomes `while a: X; break`."""

    def change(node: cst.If, _: int) -> cst.BaseStatement:
        leaves = m.findall(node.body, m.Break() | m.Continue())
        if node.orelse is not None or leaves or not isinstance(node.body, cst.IndentedBlock):
            return node
        loop = statements(f"while {text_of([node.test])}:\n    pass\n")[0]
        return loop.with_changes(body=block([*node.body.body, *statements("break\n")]))  # type: ignore[list-item]

    return _tests(module, change)


@refactoring()
def rest_under_test(module: cst.Module) -> cst.Module | None:
    """`if a: return` and the rest become `if a: return`, `else:` the rest."""

    class Returns(cst.CSTTransformer):
        def leave_IndentedBlock(
            self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
        ) -> cst.IndentedBlock:
            body = list(updated_node.body)
            for index, node in enumerate(body[:-1]):
                if isinstance(node, cst.If) and node.orelse is None and _returns(node):
                    rest = cst.Else(block(body[index + 1 :]))  # type: ignore[arg-type]
                    return updated_node.with_changes(
                        body=[*body[:index], node.with_changes(orelse=rest)]
                    )
            return updated_node

    def _returns(node: cst.If) -> bool:
        return m.matches(
            node.body, m.IndentedBlock(body=[m.ZeroOrMore(), m.SimpleStatementLine([m.Return()])])
        )

    changed = module.visit(Returns())
    return None if changed.code == module.code else changed


@refactoring()
def last_test_returns(module: cst.Module) -> cst.Module | None:
    """`if a: X` at the end of a function becomes `if not (a): return` and X."""

    class Functions(cst.CSTTransformer):
        def leave_FunctionDef(
            self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
        ) -> cst.FunctionDef:
            body = list(updated_node.body.body)
            last = body[-1]
            if not isinstance(last, cst.If) or last.orelse is not None:
                return updated_node
            if not isinstance(last.body, cst.IndentedBlock):
                return updated_node
            test = statements(f"if not ({text_of([last.test])}):\n    return\n")
            return updated_node.with_changes(body=block([*body[:-1], *test, *last.body.body]))  # type: ignore[list-item]

    changed = module.visit(Functions())
    return None if changed.code == module.code else changed


@refactoring()
def exit_stack(module: cst.Module) -> cst.Module | None:
    """`with a as x:` becomes `with ExitStack() as stack:` and `x = stack.enter_context(a)`."""

    class Withs(cst.CSTTransformer):
        count = 0

        def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.With:
            if updated_node.asynchronous is not None:
                return updated_node
            self.count += 1
            lines = ""
            for item in updated_node.items:
                target = f"{text_of([item.asname.name])} = " if item.asname is not None else ""
                lines += f"{target}stack_{self.count}.enter_context({text_of([item.item])})\n"
            made = statements(f"with contextlib.ExitStack() as stack_{self.count}:\n    pass\n")[0]
            body = [*statements(lines), *updated_node.body.body]
            return made.with_changes(body=block(body), leading_lines=updated_node.leading_lines)  # type: ignore[arg-type,return-value]

    changed = module.visit(Withs())
    return None if changed.code == module.code else with_head(changed, "import contextlib\n")


@refactoring()
def context_in_variable(module: cst.Module) -> cst.Module | None:
    """`with a:` becomes `context = a` and `with context:`."""

    class Withs(cst.CSTTransformer):
        count = 0

        def leave_With(
            self, original_node: cst.With, updated_node: cst.With
        ) -> cst.BaseStatement | cst.FlattenSentinel:  # type: ignore[type-arg]
            if updated_node.asynchronous is not None or len(updated_node.items) > 1:
                return updated_node
            self.count += 1
            item = updated_node.items[0]
            line = statements(f"context_{self.count} = {text_of([item.item])}\n")
            items = [item.with_changes(item=cst.Name(f"context_{self.count}"))]
            return cst.FlattenSentinel([*line, updated_node.with_changes(items=items)])

    changed = module.visit(Withs())
    return None if changed.code == module.code else changed
