"""Findings about the check itself: they come from no trace, and have a page like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from fsdplint.files import Problem
from fsdplint.rule import Bad, Finding, Rule, Safety, Severity
from fsdplint.selection import UNUSED
from fsdplint.trace import Trace


class UnreadableFile(Rule):
    """A file cannot be checked.

    ## What it does
    Names a file that is missing, is not Python, is in no encoding that Python reads, is too large
    or nested too deeply, or that a defect of fsdplint kept from being checked; and says what to do.

    ## Why is this bad?
    Nothing is known about the file, and nothing about what other files do with what is in it. The
    exit code is 2, whatever else is found.
    """

    code = Problem.CODE
    name = Problem.NAME
    severity = Severity.ERROR
    bad: ClassVar[tuple[Bad, ...]] = (
        Bad("def train(:  # fsdp\n", runs=False, why_not="no Python"),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class UnusedSuppression(Rule):
    """A comment turns off what is not found there.

    ## What it does
    Finds comments (`noqa` with codes of fsdplint, `fsdplint: ignore`, `disable` and `file-ignore`)
    none of whose rules finds anything where they hold, and each `fsdplint: enable` that ends
    nothing. `--fix` takes the rule out of the comment, or the comment away.

    It is silent where that is not certain: where a rule that the comment names is off or needs a
    real run, where files that import this one were not given, where a file could not be read, or
    where the program was too large to be followed to its end.

    ## Why is this bad?
    It hides the next finding there. And it says that something is wrong in a line that is right.

    ## Fix safety
    Only the comment changes.
    """

    code, name = UNUSED
    severity = Severity.WARNING
    fixable = Safety.SAFE
    bad: ClassVar[tuple[Bad, ...]] = (
        Bad(
            "import torch  # for fsdp  # noqa: FSDP101\n",
            fixed="import torch  # for fsdp\n",
            runs=False,
            why_not="a comment",
        ),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


META_RULES: tuple[type[Rule], ...] = (UnreadableFile, UnusedSuppression)
