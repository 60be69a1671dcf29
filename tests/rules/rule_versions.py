"""Run the examples of all rules on other versions of torch, and keep what differs.

    python tests/rules/rule_versions.py 2.6.0 2.8.0 [--folder FOLDER] [--rule FSDP405] [--write]

Each version is installed into an environment of its own in FOLDER, unless it is there, which takes
some gigabytes for each. Each bad example then runs on two ranks and has to show its symptom, each
fixed one has to be healthy, and each good one has to end without an error. What does not is printed,
and kept in `rule_versions.tsv` with `--write`, in place of what the file says of the same versions.
What a difference means is written there by hand (`MEANINGS`); `--write` keeps it.

This is no test of the suite. `test_rule_versions.py` holds the rules to the file.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from two_ranks import Outcome

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_suffix(".tsv")
HEADER = ("torch", "rule", "example", "kind", "meaning", "observed")
MEANINGS = {
    "no defect": "The program is correct on this version, and its rule is silent about it.",
    "fix without effect": "The fix does not mend the program on this version, and is not offered.",
    "other effect": "The program has the same defect, and shows it in another way.",
    "other report": "What the program prints to show the defect depends on the version.",
    "newer API": "The program uses what this version does not have.",
    "only on GPUs": "What the program uses does not work on CPU ranks in this version.",
    "defect there": "The program is wrong on this version only, and its rule says so for such a target.",
    "missed": "The program is wrong on this version only, and no rule says so.",
}
NEEDED = ("numpy", "click", "libcst", "packaging", "pathspec", "ruamel.yaml")
LONGEST = 160  # characters of an error


@dataclass(frozen=True, order=True)
class Difference:
    """An example that does something else on a version of torch than its file says.

    Attributes:
        torch: the version, such as "2.8.0".
        rule: the code of the rule.
        example: the name of the example.
        kind: "bad", "fixed" or "good".
        meaning: one of `MEANINGS`, or "" where nobody has judged it yet.
        observed: how the program ended, with the last line of the error if one rank raised.
    """

    torch: str
    rule: str
    example: str
    kind: str
    meaning: str
    observed: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.torch, self.rule, self.example, self.kind


def read_table() -> list[Difference]:
    """The differences that were kept, sorted."""
    rows = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return [Difference(*row.split("\t")) for row in rows]


def write_table(found: Iterable[Difference], versions: Sequence[str]) -> None:
    """Replace what the file says of these versions, except for the meanings of what stays."""
    old = read_table() if TABLE.exists() else []
    meanings = {row.key: row.meaning for row in old}
    kept = [row for row in old if row.torch not in versions]
    new = [replace(row, meaning=meanings.get(row.key, "")) for row in found]
    rows = sorted({*kept, *new}, key=lambda row: (row.rule, row.example, row.kind, _key(row)))
    lines = [HEADER, *map(astuple, rows)]
    TABLE.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def _key(row: Difference) -> list[int]:
    return [int(part) for part in row.torch.split(".")]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--folder", type=Path, default=Path("environments"))
    parser.add_argument("--rule", action="append", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--here", action="store_true", help="run with the torch of this process")
    options = parser.parse_args()
    if options.here:
        for row in differences(options.versions[0], options.rule):
            print(row.rule, row.example, row.kind, row.observed, sep="\t", flush=True)
        return 0
    found = []
    for version in options.versions:
        for row in of_version(version, options.folder, options.rule):
            print(row.torch, row.rule, row.example, row.kind, row.observed, sep="\t", flush=True)
            found.append(row)
    if options.write:
        write_table(found, options.versions)
    return 0


def of_version(version: str, folder: Path, rules: Sequence[str]) -> Iterator[Difference]:
    """Run the examples in the environment of a version, which is made if it is not there."""
    python = _environment(version, folder)
    command = [python, __file__, "--here", version]
    for rule in rules:
        command += ["--rule", rule]
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None
    for line in process.stdout:
        rule, example, kind, observed = line.rstrip("\n").split("\t")
        yield Difference(version, rule, example, kind, "", observed)
    if process.wait():
        raise SystemExit(f"the examples could not be run on torch {version}")


def _environment(version: str, folder: Path) -> str:
    """The interpreter of an environment with a version of torch."""
    place = folder / version
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", f"torch=={version}", *NEEDED], check=True
    )
    return str(python)


def differences(version: str, rules: Sequence[str]) -> Iterator[Difference]:
    """What differs from the files of the examples, on the torch of this process."""
    from two_ranks import TwoRanks

    from fsdplint.registry.example_files import examples_of
    from fsdplint.registry.examples import without_markers
    from fsdplint.registry.rules import all_rules

    two_ranks = TwoRanks()
    for kind in all_rules():
        code = kind.code
        if rules and code not in rules:
            continue
        examples = examples_of(kind)
        for bad in examples.bad:
            if bad.skip:
                continue
            outcome = two_ranks.run(without_markers(bad.code))
            if bad.symptom is not None and not outcome.shows(bad.symptom):
                yield Difference(version, code, bad.name, "bad", "", _end(outcome))
            if bad.fixed is None:
                continue
            outcome = two_ranks.run(without_markers(bad.fixed))
            healthy = re.search(bad.healthy or "", outcome.stdout, re.MULTILINE)
            if outcome.status != "ok" or not healthy:
                yield Difference(version, code, bad.name, "fixed", "", _end(outcome))
        for good in examples.good:
            if good.skip:
                continue
            outcome = two_ranks.run(without_markers(good.code))
            if outcome.status != "ok":
                yield Difference(version, code, good.name, "good", "", _end(outcome))


def _end(outcome: Outcome) -> str:
    """How a program ended, in one line."""
    if outcome.status == "ok":
        return "ok"
    errors = [
        line for line in outcome.error.splitlines() if re.match(r"[\w.]*(Error|Exit)\b", line)
    ]
    error = errors[-1] if errors else ""
    return f"{outcome.status}: {error[:LONGEST]}" if error else outcome.status


if __name__ == "__main__":
    sys.exit(main())
