"""nn.Modules: creation and submodules."""

from __future__ import annotations

import re

import libcst as cst

from fsdplint.interpreter import meta_device, training_modes
from fsdplint.interpreter.attached_parts import attach_module, note_plain_parameter
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.freezing import doubt_if_given, note_construction
from fsdplint.interpreter.functions import call_function
from fsdplint.interpreter.library_classes import (
    SHARDED_CLASSES,
    inherited_structure,
    initialises_at_random,
    may_be_module,
)
from fsdplint.interpreter.long_constructions import construction
from fsdplint.interpreter.module_tree import (
    NAMED,
    add_child,
    child_values,
    named_children,
    root_path,
    take_parts,
)
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import ModulePath, ModulesOf, ParametersOf, is_new_parameter
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    Function,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import (
    Called,
    GuardKind,
    Module,
    ModuleBuilt,
    ParametersTied,
    Replicated,
    Sharding,
)

# The key of the module whose attributes are those that a module lacks.
DELEGATE = "*delegate"
LISTS = {"torch.nn.ModuleList", "torch.nn.ModuleDict"}
SEQUENTIAL = "torch.nn.Sequential"
# The repeated blocks of the models of libraries, by their class and by the list that holds them.
_BLOCK_CLASS = re.compile(r"(Layer|Block)(V?\d+)?$")
_BLOCK_LIST = re.compile(r"(\w+_)?(layers?|blocks?)|h")


def new_module(
    run: Run,
    node: cst.CSTNode,
    class_name: str,
    *,
    cls: Class | None = None,
    library_class: str | None = None,
    children_known: bool = True,
    own_parameters: bool | None = None,
    container: bool = False,
) -> ModuleValue:
    module = ModuleValue(run.new_id("module"), cls, library_class=library_class)
    module.on_meta = any(getattr(c, "kind", "") == "meta_device" for c in run.contexts)
    module.must_be_meta = (
        cls is not None or library_class is not None
    ) and meta_device.builds_on_meta(run)
    module.created_at = run.site(node)
    run.last_new = run.steps
    run.objects[module.id] = module
    run.trace.modules[module.id] = Module(
        module.id,
        class_name,
        qualified_class=library_class,
        children_known=children_known,
        own_parameters=own_parameters,
        container=container,
    )
    return module


def build_module(run: Run, klass: Class, call: Call) -> ModuleValue:
    """Instantiate an nn.Module class of the project."""
    known, own_parameters = inherited_structure(klass.library_bases())
    module = new_module(
        run,
        call.node,
        klass.name,
        cls=klass,
        children_known=known and not klass.has_unknown_base(),
        own_parameters=own_parameters,
        container=klass.lookup("forward") is None
        and any(base in LISTS for base in klass.library_bases()),
    )
    init = klass.lookup("__init__")
    depth: int = run.loop_depth
    run.loop_depth = 0
    if isinstance(init, Function):
        with construction(run):
            result = call_function(run, init, module, call.args, call.kwargs, call.node, call.open)
        if not is_none(result):  # an error has left it
            run.trace.modules[module.id].children_known = False
    else:
        init_container(run, module, call)
    run.loop_depth = depth
    if own_parameters is False:
        note_construction(run, module)
    run.emit(
        ModuleBuilt,
        call.node,
        module=module.id,
        on_meta=module.on_meta,
        random_weights=(
            not klass.has_unknown_base()
            and all(map(initialises_at_random, klass.library_bases()))
            or None
        ),
    )
    return module


def as_module(run: Run, value: Value | None) -> ModuleValue | None:
    """The module of a value. An unknown value becomes a module, since it is used as one."""
    if value is None:
        return None
    value = run.settle(value)
    if isinstance(value, ModuleValue):
        return value
    if not isinstance(value, Unknown):
        return None
    name = value.label
    if value.part_of is not None:
        name = value.origin.rpartition(".")[2].partition("(")[0]
    if not name.isidentifier():
        name = "model"
    named_class = value.parts.get("__class__")
    if isinstance(named_class, Unknown):
        named_class = named_class.parts.get(NAMED)
    if isinstance(named_class, Class):
        name = named_class.name
    elif isinstance(named_class, Symbol):
        name = named_class.name.rpartition(".")[2]
    node = value.created_at.node if value.created_at is not None else cst.Name("module")
    module = new_module(run, node, name, children_known=False)
    module.attributes.update(
        (key, part) for key, part in value.parts.items() if not key.startswith("[")
    )
    if "[]" in value.parts:
        module.attributes["*"] = value.parts["[]"]
    module.synthetic_for, module.called = value.synthetic_for, value.called
    value.refined = module
    _adopt_parts(module, value)
    if value.library in SHARDED_CLASSES:
        assume_sharding(run, module, SHARDED_CLASSES[value.library])
    if value.part_of is not None:
        run.trace.modules[module.id].repeated = value.varying
        module.stands_for_parts = value.varying
        run.trace.modules[module.id].block = value.varying and _is_block(value, name)
        module.dtype = value.part_of.dtype
        add_child(run, value.part_of, "*" if value.varying else name, module)
        take_parts(run, module, value, value.part_of)
    return module


def name_part(run: Run, module: ModuleValue, kind: Value) -> None:
    """Note that a test asks a part of unknown class for a class, as for one that it then has."""
    if isinstance(kind, Class | Symbol):
        module.attributes["__class__"] = kind
        info = run.trace.modules[module.id]
        info.class_name = kind.name.rpartition(".")[2]
        info.block = bool(_BLOCK_CLASS.search(info.class_name))


def _is_block(part: Unknown, class_name: str) -> bool:
    """Whether a part of a model of a library is one of its repeated blocks.

    It is an element of `model.layers`, or of a class whose name says so.
    """
    held_by = part.owner.origin.rpartition(".")[2] if part.owner is not None else ""
    return bool(_BLOCK_CLASS.search(class_name) or _BLOCK_LIST.fullmatch(held_by))


def _adopt_parts(module: ModuleValue, value: Unknown) -> None:
    """What was read from a value before it became a module is part of the module."""
    for part in value.parts.values():
        if isinstance(part, Unknown) and part.part_of is None and part.refined is None:
            part.part_of = module
            _adopt_parts(module, part)


def assume_sharding(run: Run, module: ModuleValue, sharding: Sharding) -> bool:
    """A model of unknown origin is sharded, because the program uses it as such a model.

    It is the argument of a function that no code in sight calls, or the result of unknown code. A
    model that the program builds keeps what is known of it. Returns whether it was assumed.
    """
    info = run.trace.modules[module.id]
    is_known = module.cls is not None or module.library_class is not None or bool(info.children)
    if is_known or info.children_known or module.wrapper or module.sharded or module.inner:
        return False
    if any(run.trace.related(module.id, one.inner) for one in run.trace.of(Replicated)):
        return False  # code for sharded models that this run does not have
    if any(entry.guard.kind is GuardKind.RANK for entry in run.guards):
        # What other ranks have called was followed as if it did not communicate.
        if module.called or any(event.module == module.id for event in run.trace.of(Called)):
            return False
    run.assumes_sharding = run.decisions.shards = True
    if sharding is Sharding.FSDP2:
        module.sharded = True
        return True
    inner = new_module(run, cst.Name("module"), info.class_name, children_known=False)
    module.inner, module.wrapper = inner, "fsdp1"
    info.inner, info.wrapper, info.own_parameters = inner.id, "fsdp1", False
    return True


def set_module_attribute(run: Run, module: ModuleValue, name: str, value: Value) -> None:
    value = run.settle(value)
    if module.wrapper and module.inner is not None and name in module.inner.attributes:
        set_module_attribute(run, module.inner, name, value)
        return
    attach_module(run, module, value)
    meta_device.note_attribute(module, value)
    training_modes.note_attribute(module, name)
    if not isinstance(value, Const | ModuleValue):
        run.uninitialized.clear()
    module.attributes[name] = value
    info = run.trace.modules[module.id]
    if isinstance(value, ModuleValue):
        add_child(run, module, name, value)
        doubt_if_given(run, module, [value])
    elif isinstance(value, ParametersOf):
        info.own_parameters = True
        doubt_if_given(run, module, value.modules)
    elif is_new_parameter(value):
        note_new_parameter(run, module, value.get("requires_grad"))
        note_plain_parameter(run, module, name, value)
    elif isinstance(value, Unknown) and may_be_module(value.library, value.origin):
        info.children_known = False
    elif name in info.children and is_none(value):
        del info.children[name]


def note_new_parameter(run: Run, module: ModuleValue, requires_grad: Value | None) -> None:
    """Record a parameter that a module gets, which has no gradient if `requires_grad` is False."""
    info = run.trace.modules[module.id]
    known = requires_grad is None or isinstance(requires_grad, Const)
    frozen = isinstance(requires_grad, Const) and requires_grad.value is False
    info.frozen = frozen and (info.frozen or info.own_parameters is not True)
    if not frozen:
        doubt_if_given(run, module, [])
    surely = not any(entry.guard.kind is GuardKind.VARYING for entry in run.guards)
    module.some_frozen = known and (module.some_frozen or (frozen and surely))
    info.own_parameters = True


def note_tie(run: Run, target: Value, name: str, value: Value, node: cst.CSTNode) -> None:
    """Record `target.name = value` if two modules share the parameter afterwards."""
    target, value = run.settle(target), run.settle(value)
    if not isinstance(target, ModuleValue):
        return
    before = target.attributes.get(name)
    other = value.modules[0] if isinstance(value, ParametersOf) and value.name else None
    if other is not None and other is not target:
        run.emit(ParametersTied, node, module=target.id, other=other.id, name=name)
    elif isinstance(before, ParametersOf) and before.name:
        run.emit(ParametersTied, node, module=target.id, other=None, name=name)


def make_container(run: Run, node: cst.CSTNode, qualified: str, items: Value | None) -> ModuleValue:
    """ModuleList, Sequential or ModuleDict of some items."""
    name = qualified.rpartition(".")[2]
    module = new_module(
        run,
        node,
        name,
        library_class=qualified,
        own_parameters=False,
        container=name != "Sequential",
    )
    fill_container(run, module, items)
    return module


def container_base(module: ModuleValue) -> str:
    """The container of torch.nn that the class of a module is or inherits from, or ""."""
    if module.cls is None:
        return module.library_class or ""
    found = [b for b in module.cls.library_bases() if b == SEQUENTIAL or b in LISTS]
    return found[0] if found else ""


def init_container(run: Run, module: ModuleValue, call: Call) -> None:
    """The `__init__` of a container of torch.nn, for an object of a subclass in the project."""
    base = container_base(module)
    if not base or module.cls is None or module.cls.has_unknown_base():
        return
    others = [one for one in module.cls.library_bases() if one != base]
    info = run.trace.modules[module.id]
    info.children_known = inherited_structure(others)[0]
    fill_container(run, module, container_items(base, call))
    if call.open or not set(call.kwargs) <= {"modules"}:
        info.children_known = False


def container_items(qualified: str, call: Call) -> Value | None:
    """What a call of a container's constructor puts into it."""
    if qualified != SEQUENTIAL:
        return call.arg(0, "modules")
    if len(call.args) == 1 and isinstance(call.args[0], Dict):
        return call.args[0]
    return Sequence(list(call.args), "list", call.open)


def fill_container(run: Run, module: ModuleValue, items: Value | None) -> None:
    module.elements = Sequence([], "list")
    items = run.settle(items) if items is not None else None
    info = run.trace.modules[module.id]
    if isinstance(items, Dict):
        for key, value in items.items.items():
            put_element(run, module, key, value)
        elements = [run.settle(value) for value in items.items.values()]
        made = [one for one in elements if isinstance(one, ModuleValue)]
        # A comprehension gives elements with unknown keys, and no others.
        every = bool(made) and len(made) == len(elements) and all(map(_is_any_key, items.items))
        for one in made if every and items.open else ():
            run.trace.modules[one.id].repeated = True
        info.children_known = info.children_known and (every or not items.open)
    elif isinstance(items, Sequence):
        for item in items.items:
            append_element(run, module, item, repeated=items.open)
    elif items is not None:
        info.children_known = False


def _is_any_key(key: object) -> bool:
    return isinstance(key, str) and key.startswith("*")


def append_element(run: Run, module: ModuleValue, item: Value, *, repeated: bool = False) -> None:
    item = run.settle(item)
    name: Value | None = None
    if isinstance(item, Sequence) and len(item.items) == 2:  # ("name", module)
        name, item = (run.settle(part) for part in item.items)
    if module.elements is None:
        module.elements = Sequence([], "list")
    child = item if isinstance(item, ModuleValue) else None
    if child is None:
        run.trace.modules[module.id].children_known = False
        return
    attach_module(run, module, child)
    module.elements.items.append(child)
    if repeated or run.loop_depth:
        run.trace.modules[child.id].repeated = True
    key = str(len(module.elements.items) - 1)
    if name is not None:
        key = name.value if isinstance(name, Const) and isinstance(name.value, str) else "*"
    add_child(run, module, key, child)


def put_element(run: Run, module: ModuleValue, name: object, value: Value) -> None:
    """Put a module into another one under a name."""
    value = run.settle(value)
    if isinstance(value, ModuleValue):
        attach_module(run, module, value)
        if isinstance(name, str):
            module.attributes[name] = value
            add_child(run, module, name, value)


def hidden_child(run: Run, module: ModuleValue) -> Value:
    """The value that stands for the unknown children of a module."""
    if "*" not in module.attributes:
        module.attributes["*"] = Unknown(varying=True, part_of=module)
    return run.settle(module.attributes["*"])


def _hides_children(run: Run, module: ModuleValue) -> bool:
    """Whether a module may have children that are not known, besides what it delegates to."""
    return not run.trace.modules[module.id].children_known and DELEGATE not in module.attributes


def submodule_values(run: Run, value: ModulesOf | ModuleValue) -> list[Value]:
    """The elements of `m.modules()`, `m.children()`, ... or of a ModuleList."""
    if isinstance(value, ModuleValue):
        found: list[Value] = list(child_values(run, value))
        return found or [hidden_child(run, value)]
    direct = value.method in {"children", "named_children"}
    result: list[tuple[str | None, Value]] = [] if direct else [("", value.module)]
    seen = {value.module.id}
    stack = named_children(run, value.module, root_path(run, value.module))
    hidden = [value.module] if _hides_children(run, value.module) else []
    while stack:
        name, child = stack.pop(0)
        if child.id in seen:
            continue
        seen.add(child.id)
        result.append((name, child))
        if not direct:
            stack = [*named_children(run, child, name), *stack]
            if not child.stands_for_parts and _hides_children(run, child):
                hidden.append(child)
    result.extend((None, hidden_child(run, module)) for module in hidden)
    if value.reversed:
        result.reverse()
    if not value.method.startswith("named"):
        return [part for _, part in result]
    root = value.module
    return [Sequence([_path_of(root, part, name), part], "tuple") for name, part in result]


def _path_of(root: ModuleValue, part: Value, name: str | None) -> Value:
    if name is not None:
        return Const(name)
    if isinstance(part, ModuleValue):
        return ModulePath(varying=True, module=part, root=root)
    return Unknown(varying=True)
