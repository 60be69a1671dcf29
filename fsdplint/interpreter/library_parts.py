"""Data of which a library gives each rank its part.

`loader = zoo.make_loader(path, rank=rank, world_size=world_size)`

What gets the number of the rank and that of all ranks splits something among them. If the program
iterates over the result, or gives it to a `DataLoader`, it is data. Its attributes and the results
of its methods may be the same on all ranks; a method of which the program iterates over the result
returns the same data in another form.
"""

from __future__ import annotations

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.rank_local_calls import is_global_rank
from fsdplint.interpreter.ranks import is_world_size
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Symbol, Unknown, Value


def note_call(run: Run, function: Value, call: Call, result: Unknown) -> None:
    """Note that code out of sight has returned what it may have split among the ranks."""
    if run.decisions.single_rank or (isinstance(function, Symbol) and _is_torch(function.name)):
        return
    values = [run.settle(value) for value in call.values]
    owner = function.owner if isinstance(function, Unknown) else None
    if any(map(is_global_rank, values)) and any(map(is_world_size, values)):
        run.library_parts[result] = run.site(call.node)
    elif owner is not None and owner in run.library_parts:
        run.library_parts[result] = run.library_parts[owner]


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] == "torch"
