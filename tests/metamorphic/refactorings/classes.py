"""Other spellings of the program's classes."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m
from refactoring import refactoring
from syntax_tools import (
    Rename,
    after_imports,
    block,
    bound,
    expression,
    is_import,
    statements,
    text_of,
)


def _changed(module: cst.Module, visitor: cst.CSTTransformer) -> cst.Module | None:
    changed = module.visit(visitor)
    return None if changed.code == module.code else changed


@refactoring()
def super_with_arguments(module: cst.Module) -> cst.Module | None:
    """`super().__init__()` becomes `super(Class, self).__init__()`."""

    class Supers(cst.CSTTransformer):
        def __init__(self) -> None:
            self.classes: list[str] = []

        def visit_ClassDef(self, node: cst.ClassDef) -> None:
            self.classes.append(node.name.value)

        def leave_ClassDef(
            self, original_node: cst.ClassDef, updated_node: cst.ClassDef
        ) -> cst.ClassDef:
            self.classes.pop()
            return updated_node

        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
            if self.classes and m.matches(updated_node, m.Call(m.Name("super"), [])):
                return expression(f"super({self.classes[-1]}, self)")
            return updated_node

    return _changed(module, Supers())


@refactoring()
def base_class_of_modules(module: cst.Module) -> cst.Module | None:
    """The classes that inherit from `nn.Module` inherit from a class of the file that does."""

    class Bases(cst.CSTTransformer):
        def leave_ClassDef(
            self, original_node: cst.ClassDef, updated_node: cst.ClassDef
        ) -> cst.ClassDef:
            bases = [
                b.with_changes(value=cst.Name("BaseModule"))
                if text_of([b.value]) == "nn.Module"
                else b
                for b in updated_node.bases
            ]
            return updated_node.with_changes(bases=bases)

    changed = _changed(module, Bases())
    if changed is None or "nn" not in bound([s for s in module.body if is_import(s)]):
        return None
    return after_imports(changed, "\n\nclass BaseModule(nn.Module):\n    pass\n")


@refactoring()
def set_attributes(module: cst.Module) -> cst.Module | None:
    """`self.x = f()` becomes `setattr(self, "x", f())`."""

    class Attributes(cst.CSTTransformer):
        def leave_Assign(
            self, original_node: cst.Assign, updated_node: cst.Assign
        ) -> cst.BaseSmallStatement:
            target = updated_node.targets[0].target
            if len(updated_node.targets) > 1 or not m.matches(
                target, m.Attribute(value=m.Name("self"))
            ):
                return updated_node
            assert isinstance(target, cst.Attribute)
            value = text_of([updated_node.value])
            return cst.Expr(expression(f'setattr(self, "{target.attr.value}", {value})'))

    return _changed(module, Attributes())


@refactoring()
def registered_modules(module: cst.Module) -> cst.Module | None:
    """`self.x = nn.X()` becomes `self.add_module("x", nn.X())`."""

    class Attributes(cst.CSTTransformer):
        def leave_Assign(
            self, original_node: cst.Assign, updated_node: cst.Assign
        ) -> cst.BaseSmallStatement:
            target = updated_node.targets[0].target
            value = updated_node.value
            layers = m.Call(
                m.Attribute(
                    m.Name("nn"),
                    m.Name(
                        m.MatchIfTrue(lambda n: n[0].isupper() and n not in ("Parameter", "Buffer"))
                    ),
                )
            )
            if not m.matches(target, m.Attribute(value=m.Name("self"))) or not m.matches(
                value, layers
            ):
                return updated_node
            if len(updated_node.targets) > 1 or "init" in text_of([value]):
                return updated_node
            assert isinstance(target, cst.Attribute)
            return cst.Expr(
                expression(f'self.add_module("{target.attr.value}", {text_of([value])})')
            )

    class Modules(cst.CSTTransformer):
        def leave_ClassDef(
            self, original_node: cst.ClassDef, updated_node: cst.ClassDef
        ) -> cst.ClassDef:
            is_module = any(text_of([b.value]) == "nn.Module" for b in updated_node.bases)
            return updated_node.visit(Attributes()) if is_module else updated_node  # type: ignore[return-value]

    return _changed(module, Modules())


@refactoring()
def factories(module: cst.Module) -> cst.Module | None:
    """Objects of the file's classes are built by a function for each class."""
    classes = [
        s.name.value for s in module.body if isinstance(s, cst.ClassDef) and not s.decorators
    ]

    class Calls(cst.CSTTransformer):
        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            if m.matches(updated_node.func, m.Name(m.MatchIfTrue(lambda n: n in classes))):
                assert isinstance(updated_node.func, cst.Name)
                return updated_node.with_changes(
                    func=cst.Name(f"build_{updated_node.func.value.lower()}")
                )
            return updated_node

    changed = _changed(module, Calls())
    if changed is None:
        return None
    body = []
    for statement in changed.body:
        body.append(statement)
        if isinstance(statement, cst.ClassDef) and statement.name.value in classes:
            name = statement.name.value
            text = f"\n\ndef build_{name.lower()}(*args, **kwargs):\n    return {name}(*args, **kwargs)\n"
            body.extend(statements(text))
    return changed.with_changes(body=body)


@refactoring()
def registry_of_classes(module: cst.Module) -> cst.Module | None:
    """Objects of the file's classes are built out of a registry, which a decorator fills."""
    classes = {
        s.name.value for s in module.body if isinstance(s, cst.ClassDef) and not s.decorators
    }

    class Calls(cst.CSTTransformer):
        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            if m.matches(updated_node.func, m.Name(m.MatchIfTrue(lambda n: n in classes))):
                name = text_of([updated_node.func])
                return updated_node.with_changes(func=expression(f'CLASSES["{name}"]'))
            return updated_node

    changed = _changed(module, Calls())
    if changed is None:
        return None
    decorator = cst.Decorator(cst.Name("registered"))
    body = [
        s.with_changes(decorators=[decorator])
        if isinstance(s, cst.ClassDef) and s.name.value in classes
        else s
        for s in changed.body
    ]
    text = "\n\nCLASSES = {}\n\n\ndef registered(cls):\n    CLASSES[cls.__name__] = cls\n    return cls\n"
    return after_imports(changed.with_changes(body=body), text)


@refactoring()
def local_names_of_layers(module: cst.Module) -> cst.Module | None:
    """In `forward`, the attributes of `self` are read into local variables first."""

    class Forwards(cst.CSTTransformer):
        def leave_FunctionDef(
            self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
        ) -> cst.FunctionDef:
            if updated_node.name.value != "forward" or not isinstance(
                updated_node.body, cst.IndentedBlock
            ):
                return updated_node
            calls = m.findall(updated_node.body, m.Call(func=m.Attribute(m.Name("self"))))
            names = dict.fromkeys(text_of([c.func.attr]) for c in calls)  # type: ignore[attr-defined]
            if not names:
                return updated_node
            lines = statements("".join(f"own_{n} = self.{n}\n" for n in names))
            called = updated_node.body.visit(_Own())
            assert isinstance(called, cst.IndentedBlock)
            return updated_node.with_changes(body=block([*lines, *called.body]))  # type: ignore[list-item]

    class _Own(cst.CSTTransformer):
        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
            if m.matches(updated_node.func, m.Attribute(m.Name("self"))):
                name = text_of([updated_node.func.attr])  # type: ignore[attr-defined]
                return updated_node.with_changes(func=cst.Name(f"own_{name}"))
            return updated_node

    return _changed(module, Forwards())


@refactoring()
def renamed_classes(module: cst.Module) -> cst.Module | None:
    """Every class of the file is used under another name that is assigned to it."""
    classes = [s.name.value for s in module.body if isinstance(s, cst.ClassDef)]
    if not classes:
        return None
    rename = Rename({name: f"Used{name}" for name in classes})
    body = []
    for statement in module.body:
        if isinstance(statement, cst.ClassDef):
            inner = statement.visit(rename)
            assert isinstance(inner, cst.ClassDef)
            name = statement.name.value
            body.append(inner.with_changes(name=statement.name))
            body.extend(statements(f"\n\nUsed{name} = {name}\n"))
        else:
            body.append(statement if is_import(statement) else statement.visit(rename))  # type: ignore[arg-type]
    return module.with_changes(body=body)
