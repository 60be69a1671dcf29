"""The verdicts of `fsdplint prove` over the FSDP1 programs among the fixtures, as a table.

    python tests/fixture_verdicts.py [--only TEXT] [--all] [--forked] [--out FILE]

Each is copied, fixed and run before and after on two ranks, as a user would, with the first of its
arguments or with `--all` of them (and once more from what it has saved, where it can): about 20 seconds
a run on two idle cores, or with `--forked` about two (torch is imported once, as in the tests).
`tests/runtime/test_fixtures.py` compares the same programs with their expected
migrations to the bit; this shows what the proof says of them.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner
from fixture_runs import CASES, before, programs
from forked import launcher
from proof_tables import HEADER, Run, in_a_process, prove
from two_ranks import TwoRanks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--all", action="store_true", help="every case, not one for each program")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--forked", action="store_true", help="without torchrun, much faster")
    options = parser.parse_args()
    run = forked() if options.forked else in_a_process
    print(HEADER, file=options.out)
    first = {case.path: case for case in reversed(CASES)}
    for case in CASES:
        if not options.all and case is not first[case.path]:
            continue
        if options.only not in str(case):
            continue
        script = Path(case.path)
        with tempfile.TemporaryDirectory() as folder:
            for file in programs()["/".join(script.parts[:2])]:
                path = Path(folder, file.relative_to(script.parent))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(before(file), encoding="utf-8")
            Path(folder, ".git").mkdir()
            given = ["--device", "cpu"]
            if case.then is not None:
                given += ["--resume", shlex.join(case.then)]
            result = prove(str(case), Path(folder, script.name), case.args, given, run)
        print(result.line(), file=options.out, flush=True)


def forked() -> Run:
    """Runs fsdplint in this process, and its ranks forked from one that has imported torch."""
    import fsdplint.runtime.proof.program_pair
    from fsdplint.cli.main import main as command_line

    fsdplint.runtime.proof.program_pair.launch = launcher(TwoRanks())

    def run(command: Sequence[str], folder: Path) -> tuple[int, str]:
        before = os.getcwd()
        os.chdir(folder)
        try:
            result = CliRunner().invoke(command_line, list(command))
        finally:
            os.chdir(before)
        return result.exit_code, result.output

    return run


if __name__ == "__main__":
    main()
