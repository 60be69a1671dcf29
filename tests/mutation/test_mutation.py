"""A fixed sample of planted bugs: a check finds them, and runs on two ranks show them.

`matrix.py` measures all of them. A miss that is known is in `surviving_mutants.py` with its cause; one that is
mended fails here until it is taken out of the table.
"""

from __future__ import annotations

from functools import cache

import operators  # noqa: F401 (registers them)
import pytest
from clean_programs import Program, fixtures, good_examples
from file_syntax import FileSyntax
from mutant_runs import shown
from mutant_verdicts import FOUND, verdict
from mutation_operator import OPERATORS, Mutant, Operator
from planting import plant, statements
from surviving_mutants import MISSES
from two_ranks import TwoRanks

# The programs whose sites are tried first; each operator has a site in one of them or in an example below.
SAMPLE = (
    "fsdp2/flat_script",
    "fsdp2/functions",
    "fsdp2/trainer_class",
    "fsdp2/hsdp_mesh",
    "fsdp2/generate",
    "fsdp1/flat_script",
    "fsdp1/trainer_class",
    "fsdp1_cuda/scaler_accumulation",
)
# Mutants that are run: an operator and a program.
RUN = (
    ("forward_called", "fsdp2/flat_script"),
    ("if_attribute", "fsdp2/flat_script"),
    ("root_first", "fsdp2/flat_script"),
    ("state_type_of_fsdp1", "fsdp2/flat_script"),
    ("seed_of_rank", "fsdp1/flat_script"),
)


@cache
def programs() -> dict[str, Program]:
    return {program.name: program for program in (*fixtures(), *good_examples())}


@cache
def first_mutant(made: Operator) -> tuple[Mutant, Program] | None:
    """A mutant in one of the programs of the sample that is not among the known misses."""
    for name in SAMPLE:
        program = programs()[name]
        for mutant in made.mutants(program.files):
            if (made.name, name, mutant.line) not in MISSES:
                return mutant, program
    return None


@pytest.mark.parametrize("made", OPERATORS.values(), ids=lambda one: one.name)
def test_a_planted_bug_is_found(made: Operator) -> None:
    first = first_mutant(made)
    if first is None:
        pytest.skip("no site in the sample")
    mutant, program = first
    found = verdict(mutant, program)
    assert found.result == FOUND, (mutant.file, mutant.line, found)


def test_most_operators_have_a_site_in_the_sample() -> None:
    with_sites = [one for one in OPERATORS.values() if first_mutant(one) is not None]
    assert len(with_sites) >= 60 and len(OPERATORS) >= 70


@pytest.mark.parametrize(("name", "program", "line"), list(MISSES))
def test_a_known_miss_is_still_missed(name: str, program: str, line: int) -> None:
    clean = programs()[program]
    mutant = next(m for m in OPERATORS[name].mutants(clean.files) if m.line == line)
    found = verdict(mutant, clean)
    assert found.result != FOUND, "it is found now: remove it from the table"


@pytest.mark.parametrize(("name", "program"), RUN)
def test_a_run_shows_a_planted_bug(name: str, program: str, two_ranks: TwoRanks) -> None:
    clean = programs()[program]
    mutant = next(OPERATORS[name].mutants(clean.files))
    assert shown(mutant, clean, two_ranks)


def test_statements_are_planted_in_the_place_of_a_statement() -> None:
    syntax = FileSyntax.of('"""A file."""\n\nif x:\n    f()  # here\n')
    assert syntax is not None
    (call,) = syntax.all_calls
    statement = syntax.statement(call)
    assert statement is not None
    changed = plant(syntax.module, {statement: statements("g()\nh()\n")}, "import y\n")
    assert changed == '"""A file."""\nimport y\n\nif x:\n    g()\n    h()\n'
    assert plant(syntax.module, {statement: []}).endswith("if x:\n    pass\n")


def test_the_sharded_names_of_a_file_are_known() -> None:
    text = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard\n"
        "def shard(net):\n    for layer in net.layers:\n        fully_shard(layer)\n"
        "    return fully_shard(net)\n"
        "model = shard(Net())\nself.teacher = FSDP(Net())\n"
    )
    syntax = FileSyntax.of(text)
    assert syntax is not None
    assert syntax.roots == {"net": 2, "model": 2, "self.teacher": 1}
    assert syntax.version is None
