"""How a script is started: through functions, classes, registries, launchers."""

from __future__ import annotations

import libcst as cst
from refactoring import refactoring
from scripts import Script, of_main
from syntax_tools import block, function, statements, with_head


@refactoring(is_of_script=True)
@of_main
def main_function(script: Script) -> cst.Module | None:
    """The whole script becomes a function `main`."""
    return script.with_body(script.body)


@refactoring(is_of_script=True)
@of_main
def entry_guard(script: Script) -> cst.Module | None:
    """`main` is called under `if __name__ == "__main__":`."""
    call = statements(f'\n\nif __name__ == "__main__":\n    {script.name}()\n')
    return Script(script.module, script.top, script.body, call, script.name).with_body(script.body)


@refactoring(is_of_script=True)
@of_main
def decorated_main(script: Script) -> cst.Module | None:
    """A decorator with `functools.wraps` is around `main`."""
    decorator = statements(
        "\n\ndef entry(run):\n"
        "    @functools.wraps(run)\n"
        "    def wrapper(*args, **kwargs):\n"
        "        return run(*args, **kwargs)\n\n"
        "    return wrapper\n"
    )
    main = function(script.name, script.body, decorator="entry")
    changed = script.with_entry([*decorator, main], f"{script.name}()")
    return with_head(changed, "import functools\n")


@refactoring(is_of_script=True)
@of_main
def elastic_record(script: Script) -> cst.Module | None:
    """torch's decorator `record` is around `main`."""
    main = function(script.name, script.body, decorator="record")
    changed = script.with_entry([main], f"{script.name}()")
    return with_head(
        changed, "from torch.distributed.elastic.multiprocessing.errors import record\n"
    )


@refactoring(is_of_script=True)
@of_main
def registry_dict(script: Script) -> cst.Module | None:
    """`main` is called out of a dict of functions."""
    main = function(script.name, script.body)
    table = statements(f'\n\nCOMMANDS = {{"train": {script.name}, "nothing": print}}\n')
    return script.with_entry([main, *table], 'COMMANDS["train"]()')


@refactoring(is_of_script=True)
@of_main
def registry_decorator(script: Script) -> cst.Module | None:
    """`main` is put into a registry by a decorator, and called by its name there."""
    register = statements(
        "\n\nCOMMANDS = {}\n\n\n"
        "def register(name):\n"
        "    def add(function):\n"
        "        COMMANDS[name] = function\n"
        "        return function\n\n"
        "    return add\n"
    )
    main = function(script.name, script.body, decorator='register("train")')
    return script.with_entry([*register, main], 'COMMANDS["train"]()')


@refactoring(is_of_script=True)
@of_main
def spawn_entry(script: Script) -> cst.Module | None:
    """A launcher calls a worker with its rank under torchrun, and `mp.spawn` otherwise."""
    worker = function(script.name, script.body, "rank_of_worker, *args")
    launch = statements(
        "\n\ndef launch(worker, *args):\n"
        '    if "RANK" in os.environ:\n'
        '        worker(int(os.environ["RANK"]), *args)\n'
        "    else:\n"
        "        torch.multiprocessing.spawn(worker, args=args, nprocs=2)\n"
    )
    changed = script.with_entry([worker, *launch], f"launch({script.name})")
    return with_head(changed, "import os\n\nimport torch.multiprocessing\n")


@refactoring(is_of_script=True)
@of_main
def nested_function(script: Script) -> cst.Module | None:
    """The body of `main` becomes a function inside of `main`."""
    if any("global " in line for line in script.module.code.splitlines()):
        return None
    run = function("run", script.body)
    return script.with_body([run, *statements("return run()\n")])


@refactoring(is_of_script=True)
@of_main
def static_method(script: Script) -> cst.Module | None:
    """`main` becomes a static method of a class."""
    return _method(script, "", "staticmethod", "Program.run()")


@refactoring(is_of_script=True)
@of_main
def class_method(script: Script) -> cst.Module | None:
    """`main` becomes a class method."""
    return _method(script, "cls", "classmethod", "Program.run()")


@refactoring(is_of_script=True)
@of_main
def trainer_class(script: Script) -> cst.Module | None:
    """`main` becomes a method of a class."""
    return _method(script, "self", "", "Program().run()")


@refactoring(is_of_script=True)
@of_main
def callable_object(script: Script) -> cst.Module | None:
    """`main` becomes the method `__call__` of a class."""
    return _method(script, "self", "", "Program()()", name="__call__")


@refactoring(is_of_script=True)
@of_main
def method_by_name(script: Script) -> cst.Module | None:
    """`main` becomes a method that is called through `getattr` with a constant."""
    return _method(script, "self", "", 'getattr(Program(), "run")()')


def _method(
    script: Script, parameter: str, decorator: str, call: str, name: str = "run"
) -> cst.Module | None:
    method = function(name, script.body, parameter, decorator)
    made = statements("\n\nclass Program:\n    pass\n")[0].with_changes(body=block([method]))
    return script.with_entry([made], call)


@refactoring(is_of_script=True)
@of_main
def partial_of_main(script: Script) -> cst.Module | None:
    """`main` is called through `functools.partial`, which binds an argument."""
    main = function(script.name, script.body, "*, name_of_run")
    call = f'functools.partial({script.name}, name_of_run="first")()'
    return with_head(script.with_entry([main], call), "import functools\n")
