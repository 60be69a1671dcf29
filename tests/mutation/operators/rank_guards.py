"""A statement that every rank has to run stands under a test of the rank, in many spellings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst
import libcst.matchers as m
from file_syntax import FileSyntax
from mutation_operator import Plan, add
from planting import Statement, statements
from rank_sites import sites

COLLECTIVE = ("FSDP501",)
STEP = ("FSDP414",)
LEAVES = ("after_return", "after_continue")  # these keep the other ranks from later statements, too
# What takes the place of a statement, and what comes to the top of the file; None: it does not apply.
Guarded = tuple[Sequence[Statement], str]
Spelling = Callable[[FileSyntax, cst.SimpleStatementLine], "Guarded | None"]


def _under(head: str, statement: cst.SimpleStatementLine) -> cst.If:
    test = statements(f"{head}:\n    pass\n")[0]
    assert isinstance(test, cst.If)
    kept = statement.with_changes(leading_lines=[])
    return test.with_changes(body=cst.IndentedBlock([kept]))


def _with_rank(syntax: FileSyntax) -> tuple[str, str]:
    name, head = syntax.dist
    return f"{name}.get_rank()", head


def _is_in_function(syntax: FileSyntax, statement: cst.CSTNode) -> bool:
    scope = syntax.scope(statement)
    return isinstance(scope, cst.FunctionDef) and not m.findall(scope, m.Yield())


def if_get_rank(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under `if dist.get_rank() == 0:`."""
    rank, head = _with_rank(syntax)
    return [_under(f"if {rank} == 0", statement)], head


def if_rank_variable(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test of a variable: `if this_rank == 0:`."""
    rank, head = _with_rank(syntax)
    return [*statements(f"this_rank = {rank}\n"), _under("if this_rank == 0", statement)], head


def if_not_rank(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under `if not this_rank:`."""
    rank, head = _with_rank(syntax)
    return [*statements(f"this_rank = {rank}\n"), _under("if not this_rank", statement)], head


def if_main_function(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test by a function of the file: `if is_main_rank():`."""
    head = (
        "import torch.distributed\n\n\n"
        "def is_main_rank():\n"
        "    if not torch.distributed.is_initialized():\n"
        "        return True\n"
        "    return torch.distributed.get_rank() == 0\n\n\n"
    )
    return [_under("if is_main_rank()", statement)], "import torch\n" + head


def after_return(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """After an early `return` of the other ranks."""
    rank, head = _with_rank(syntax)
    if not _is_in_function(syntax, statement):
        return None
    return [*statements(f"if {rank} != 0:\n    return\n"), statement], head


def after_continue(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """After a `continue` of the other ranks."""
    rank, head = _with_rank(syntax)
    if syntax.loop(statement) is None:
        return None
    return [*statements(f"if {rank} > 0:\n    continue\n"), statement], head


def if_environment(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test of the environment: `if os.environ["RANK"] == "0":`."""
    return [_under('if os.environ["RANK"] == "0"', statement)], "import os\n"


def if_environment_number(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test of the environment: `if int(os.environ.get("RANK", 0)) == 0:`."""
    return [_under('if int(os.environ.get("RANK", 0)) == 0', statement)], "import os\n"


def if_attribute(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test of an attribute that another class holds: `if RANKS.is_master:`."""
    head = (
        "import os\n\n\n"
        "class Ranks:\n"
        "    def __init__(self):\n"
        '        self.rank = int(os.environ.get("RANK", "0"))\n'
        "        self.is_master = self.rank == 0\n\n\n"
        "RANKS = Ranks()\n"
    )
    return [_under("if RANKS.is_master", statement)], head


def if_property(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test of a property of another class: `if Ranks().is_main_process:`."""
    head = (
        "import torch\nimport torch.distributed\n\n\n"
        "class Ranks:\n"
        "    @property\n"
        "    def is_main_process(self):\n"
        "        return torch.distributed.get_rank() in (-1, 0)\n\n\n"
    )
    return [_under("if Ranks().is_main_process", statement)], head


def in_else(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """In the `else` of a test for the other ranks."""
    rank, head = _with_rank(syntax)
    test = statements(f"if {rank} >= 1:\n    pass\nelse:\n    pass\n")[0]
    assert isinstance(test, cst.If) and test.orelse is not None
    kept = statement.with_changes(leading_lines=[])
    orelse = test.orelse.with_changes(body=cst.IndentedBlock([kept]))
    return [test.with_changes(orelse=orelse)], head


_WRITER = (
    "import torch.distributed\n\n\n"
    "class RankWriter:\n"
    "    def write(self, text):\n"
    "        print(text)\n\n\n"
    "def rank_writer():\n"
    "    return RankWriter() if torch.distributed.get_rank() == 0 else None\n\n\n"
)


def if_object(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """Under a test for an object that only rank 0 has: `if writer is not None:`."""
    head = "import torch\n" + _WRITER
    made = statements("this_writer = rank_writer()\n")
    return [*made, _under("if this_writer is not None", statement)], head


def in_loop_over_objects(syntax: FileSyntax, statement: cst.SimpleStatementLine) -> Guarded | None:
    """In a loop over objects of which rank 0 alone has one: `for writer in writers:`."""
    rank, head = _with_rank(syntax)
    made = statements(
        f"these_writers = []\nif {rank} == 0:\n    these_writers.append(RankWriter())\n"
    )
    loop = statements("for this_writer in these_writers:\n    pass\n")[0]
    assert isinstance(loop, cst.For)
    kept = statement.with_changes(leading_lines=[])
    return [
        *made,
        loop.with_changes(body=cst.IndentedBlock([kept])),
    ], head + "import torch\n" + _WRITER


def _operator(spelling: Spelling) -> None:
    def planner(syntax: FileSyntax) -> Iterator[Plan]:
        for kind, statement in sites(syntax):
            guarded = spelling(syntax, statement)
            if guarded is not None:
                changed, head = guarded
                leaves = spelling.__name__ in LEAVES
                rules = COLLECTIVE if kind != "step" else STEP + COLLECTIVE * leaves
                yield Plan(statement, {statement: changed}, head, kind, rules)

    add(spelling.__name__, spelling.__doc__ or "", COLLECTIVE, planner)


for _spelling in (
    if_get_rank,
    if_rank_variable,
    if_not_rank,
    if_main_function,
    after_return,
    after_continue,
    if_environment,
    if_environment_number,
    if_attribute,
    if_property,
    in_else,
    if_object,
    in_loop_over_objects,
):
    _operator(_spelling)
