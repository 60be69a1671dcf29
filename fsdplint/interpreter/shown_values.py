"""Whether a call shows its arguments: it writes them to a text, a log or a board.

The function that is called decides it. Its name counts if nothing else is known of it.
"""

from __future__ import annotations

from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.method_names import attribute_name, library_of
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Const, Method, Sequence, Symbol, Unknown, Value

_TEXTS = frozenset(
    "builtins.format builtins.print builtins.repr builtins.str json.dump json.dumps pprint.pprint "
    "sys.stderr.write sys.stdout.write".split()
)
_REPORTING = frozenset(
    "aim comet_ml logging loguru mlflow neptune rich swanlab tabulate tensorboardX termcolor "
    "wandb warnings".split()
)
_BOARD = "torch.utils.tensorboard."
_COMPUTING = frozenset("builtins functools itertools math numpy operator statistics torch".split())
_OF_PROGRESS = frozenset({"set_description", "set_description_str", "set_postfix"})  # of tqdm


def shows(run: Run, function: Value) -> bool:
    """Whether a function shows what it gets. That of a program is executed, and does not count."""
    if isinstance(function, Symbol):
        return function.name in _TEXTS or _reports(function.name)
    if isinstance(function, Method):
        receiver = run.settle(function.receiver)
        formats = function.name == "format" and isinstance(receiver, Const)
        return formats or (function.name in _OF_PROGRESS and isinstance(receiver, Sequence))
    if not isinstance(function, Unknown):
        return False
    return _reports(f"{library_of(function)}.{attribute_name(function)}")


def _reports(name: str) -> bool:
    """Whether a function or method reports, by the dotted name of its library and its own."""
    library, _, last = name.rpartition(".")
    root = library.partition(".")[0]
    if root in _REPORTING or name.startswith(_BOARD):
        return True
    return root not in _COMPUTING and is_report(last)
