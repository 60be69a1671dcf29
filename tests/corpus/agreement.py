"""Every way of asking for a migration, on programs that others wrote: where do they disagree?

    python tests/corpus/agreement.py INDEX [--out FILE] [--only TEXT]

INDEX is that of `migrations.py`, and so are the programs. Of each, `--fix --project`, `migrate --fix`, the
Python interface and the language server's "fix all" have to make the same texts, by itself and together
with a folder beside it that holds another program. A line is written for each program; nothing of the
programs is kept. Not a test: `pytest` does not collect it.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from agreeing import add_unrelated, disagreements
from migrations import _only_code
from programs import WORKERS, Program, read_index


def row(program: Program) -> list[str]:
    """The line of a program."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, program.project.name)
        shutil.copytree(program.project, copy, ignore=_only_code, symlinks=True)
        (copy / ".git").mkdir(exist_ok=True)
        file = copy / program.path.relative_to(program.project)
        try:
            found = disagreements(file, add_unrelated(copy), thorough=True)
        except Exception as error:
            return [program.name, "crash", f"{type(error).__name__}: {error}"]
        return [program.name, "disagree" if found else "agree", " | ".join(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index", type=Path)
    parser.add_argument("--depth", type=int, default=3, help="parts of a project's path")
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--only", default="", help="programs whose name has this in it")
    args = parser.parse_args()
    programs = [
        program
        for program in read_index(args.index, args.depth)
        if program.kind == "fsdp1" and program.role.startswith("user") and args.only in program.name
    ]
    writer = csv.writer(args.out, delimiter="\t", lineterminator="\n")
    counts: Counter[str] = Counter()
    with multiprocessing.Pool(WORKERS) as pool:
        for line in pool.imap(row, programs):
            writer.writerow(line)
            args.out.flush()
            counts[line[1]] += 1
    print(dict(counts), file=sys.stderr)


if __name__ == "__main__":
    main()
