"""Classes and generators through which larger programs run: mixins, delegation, properties."""

from __future__ import annotations

import libcst as cst
from refactoring import Split, refactoring
from scripts import Script, halves_of, of_main, script_of
from syntax_tools import (
    Rename,
    Statement,
    block,
    function,
    has_own,
    is_import,
    statements,
    with_head,
)

from refactorings.halves import local_variables

TRAINER = """\
import abc


class BaseTrainer(abc.ABC):
    def __call__(self):
        self.before()
        return self.run()

    def before(self):
        pass

    @abc.abstractmethod
    def run(self):
        ...
"""


def _class(head: str, *methods: cst.FunctionDef) -> Statement:
    return statements(f"\n\nclass {head}:\n    pass\n")[0].with_changes(body=block(methods))


def _two_methods(script: Script) -> tuple[cst.FunctionDef, cst.FunctionDef] | None:
    """The halves as methods `set_up` and `run`, which share attributes."""
    halves = halves_of(script)
    if halves is None or not set(halves.handed) <= local_variables(list(script.body)):
        return None
    rename = Rename({name: f"self.{name}" for name in halves.handed})
    first = function("set_up", [s.visit(rename) for s in halves.first], "self")  # type: ignore[misc]
    second = function("run", [s.visit(rename) for s in halves.second], "self")  # type: ignore[misc]
    return first, second


@refactoring(is_of_script=True)
@of_main
def mixins(script: Script) -> cst.Module | None:
    """The halves become methods of two mixins, and a class inherits from both."""
    methods = _two_methods(script)
    if methods is None:
        return None
    both = statements(
        "\n\nclass Both(BuildsMixin, TrainsMixin):\n    def __init__(self):\n        self.set_up()\n"
    )
    parts = [_class("BuildsMixin", methods[0]), _class("TrainsMixin", methods[1])]
    return script.with_entry([*parts, *both], "Both().run()")


@refactoring(is_of_script=True)
@of_main
def super_chain(script: Script) -> cst.Module | None:
    """Each class of a chain calls its parent's method by `super()` and then runs its own half."""
    methods = _two_methods(script)
    if methods is None or has_own(list(script.body), cst.Return):
        return None
    first, second = (one.with_changes(name=cst.Name("run")) for one in methods)
    chained = second.with_changes(
        body=block([*statements("super().run()\n"), *second.body.body])  # type: ignore[list-item]
    )
    last = statements(
        "\n\nclass Logged(Trains):\n    def run(self, *args, **kwargs):\n"
        "        return super().run(*args, **kwargs)\n"
    )
    return script.with_entry(
        [_class("Builds", first), _class("Trains(Builds)", chained), *last], "Logged().run()"
    )


@refactoring(is_of_script=True)
@of_main
def delegation(script: Script) -> cst.Module | None:
    """A wrapper forwards what it does not have to another object by `__getattr__`."""
    wrapper = statements(
        "\n\nclass Wrapper:\n    def __init__(self, inner):\n        self.inner = inner\n\n"
        "    def __getattr__(self, name):\n        return getattr(self.inner, name)\n"
    )
    inner = _class("Inner", function("run", script.body, "self"))
    return script.with_entry([inner, *wrapper], "Wrapper(Inner()).run()")


@refactoring(is_of_script=True)
@of_main
def properties(script: Script) -> cst.Module | None:
    """The first half becomes a cached property, which the second half reads."""
    halves = halves_of(script)
    if halves is None or has_own(list(script.body), cst.Return):
        return None
    values = ", ".join(halves.handed) + ("," if len(halves.handed) == 1 else "")
    result = statements(f"return {values}\n")
    parts = function("parts", [*halves.first, *result], "self", "functools.cached_property")
    read = statements(f"{values} = self.parts\n")
    run = function("run", [*read, *halves.second], "self")
    changed = script.with_entry([_class("Lazy", parts, run)], "Lazy().run()")
    return with_head(changed, "import functools\n")


@refactoring(is_of_script=True)
@of_main
def partial_method(script: Script) -> cst.Module | None:
    """`main` becomes a method that `functools.partialmethod` binds to an argument."""
    run = function("_run", script.body, "self, mode_of_run")
    made = _class("Runs", run)
    bound = statements('run = functools.partialmethod(_run, mode_of_run="train")\n')
    whole = made.with_changes(body=block([run, *bound]))
    return with_head(script.with_entry([whole], "Runs().run()"), "import functools\n")


@refactoring(is_of_script=True)
@of_main
def from_config(script: Script) -> cst.Module | None:
    """A class method makes the object from a dict, by `cls(**config)`."""
    set_up = statements(
        "\n\nclass Runner:\n    def __init__(self, name, *, steps=1):\n"
        "        self.name, self.steps = name, steps\n\n"
        "    @classmethod\n    def from_config(cls, config):\n        return cls(**config)\n"
    )[0]
    run = function("run", script.body, "self")
    body = [*set_up.body.body, run]  # type: ignore[union-attr]
    made = set_up.with_changes(body=block(body))  # type: ignore[arg-type]
    return script.with_entry([made], 'Runner.from_config({"name": "train"}).run()')


@refactoring(is_of_script=True)
def base_trainer_in_file(module: cst.Module) -> Split | None:
    """An abstract trainer in another file has `__call__`, which runs the method of the script."""
    script = script_of(module)
    if script is None:
        return None
    made = _class("ScriptTrainer(BaseTrainer)", function("run", script.body, "self"))
    changed = script.with_entry([made], "ScriptTrainer()()")
    imports = [i for i, s in enumerate(changed.body) if is_import(s)]
    place = imports[-1] + 1 if imports else 0
    added = statements("from base_of_trainers import BaseTrainer\n")
    body = [*changed.body[:place], *added, *changed.body[place:]]
    return Split(changed.with_changes(body=body), {"base_of_trainers.py": TRAINER})


@refactoring(is_of_script=True)
@of_main
def generator_with_send(script: Script) -> cst.Module | None:
    """`main` becomes a generator that gets each command by `send`."""
    halves = halves_of(script)
    if halves is None or has_own(list(script.body), cst.Return):
        return None
    wait = statements("command_of_run = yield\n")
    phases = function("phases", [*halves.first, *wait, *halves.second, *statements("yield\n")])
    drive = 'running = phases()\nnext(running)\nrunning.send("train")\n'
    main = function(script.name, statements(drive))
    return script.with_entry([phases, main], f"{script.name}()")


@refactoring(is_of_script=True)
@of_main
def nonlocal_variables(script: Script) -> cst.Module | None:
    """The first half becomes a nested function that sets variables of `main` by `nonlocal`."""
    halves = halves_of(script)
    if halves is None or not set(halves.handed) <= local_variables(list(script.body)):
        return None
    names = ", ".join(halves.handed)
    first = function("set_up", [*statements(f"nonlocal {names}\n"), *halves.first])
    none = statements(" = ".join([*halves.handed, "None"]) + "\n")
    return script.with_body([*none, first, *statements("set_up()\n"), *halves.second])


@refactoring(is_of_script=True)
@of_main
def exit_callback(script: Script) -> cst.Module | None:
    """The second half is a callback of an `ExitStack`, which runs at its end."""
    halves = halves_of(script)
    if halves is None or has_own(list(script.body), cst.Return):
        return None
    names = ", ".join(halves.handed)
    second = function("at_the_end", halves.second, names)
    body = block([*halves.first, *statements(f"stack_of_run.callback(at_the_end, {names})\n")])
    stack = statements("with contextlib.ExitStack() as stack_of_run:\n    pass\n")[0]
    main = function(script.name, [stack.with_changes(body=body)])
    changed = script.with_entry([second, main], f"{script.name}()")
    return with_head(changed, "import contextlib\n")


@refactoring(is_of_script=True)
@of_main
def suppressed_error(script: Script) -> cst.Module | None:
    """The program stands in `with contextlib.suppress(KeyboardInterrupt)`."""
    if has_own(list(script.body), cst.Global):
        return None
    around = statements("with contextlib.suppress(KeyboardInterrupt):\n    pass\n")[0]
    body = [around.with_changes(body=block(script.body))]
    return with_head(script.with_body(body), "import contextlib\n")


@refactoring(is_of_script=True)
@of_main
def nested_registry(script: Script) -> cst.Module | None:
    """`main` stands in a dict of dicts and is found by two names."""
    main = function(script.name, script.body)
    registry = statements(
        f'\n\nREGISTRY = {{"train": {{"default": {script.name}}}, "other": {{}}}}\n'
    )
    return script.with_entry([main, *registry], 'REGISTRY["train"]["default"]()')
