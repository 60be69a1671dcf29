"""Findings about the check itself. They come from no trace, but have a page like the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from fsdplint.diagnostics.codes import CUT_SHORT, UNUSED
from fsdplint.diagnostics.finding import Finding, Safety, Severity
from fsdplint.registry.examples import Bad
from fsdplint.registry.rule import Rule
from fsdplint.source.files import Problem
from fsdplint.trace import Trace

if TYPE_CHECKING:
    from fsdplint.interpreter import Program
    from fsdplint.interpreter.cuts import Cut


MANY = 4  # largest number of further files of a program that get a finding each


class UnreadableFile(Rule):
    """A file cannot be checked.

    ## What it does
    Reports a file that is missing, is not Python, has an unknown encoding, is too large or nested
    too deeply, or cannot be checked because of a defect of fsdplint. The message says what to do.

    ## Why is this bad?
    The file is not checked, and neither are the uses of its code in other files. The exit code is
    2, whatever else is found.
    """

    code = Problem.CODE
    name = Problem.NAME
    severity = Severity.ERROR
    bad: ClassVar[tuple[Bad, ...]] = (Bad("def train(:  # fsdp\n", skip="no Python"),)

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class UnusedSuppression(Rule):
    """A comment suppresses a finding that does not exist.

    ## What it does
    Finds comments (`noqa` with codes of fsdplint, `fsdplint: ignore`, `disable` and `file-ignore`)
    whose rules have no finding in their lines, and each `fsdplint: enable` that ends nothing.
    `--fix` removes the rule from the comment, or the whole comment; text after it stays.

    The rule is silent in uncertain cases: if a rule that the comment names is off or needs a real
    run, if files that import this one were not given, if a file could not be read, or if the
    program was too large to be analysed completely.

    ## Why is this bad?
    It hides the next finding in that line, and suggests a problem in a line that has none.

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
            skip="a comment",
        ),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class CutShort(Rule):
    """A program is too large to be analysed completely.

    ## What it does
    Reports where the analysis of a program reached a limit: on the steps, events or modules of one
    run, on the configurations of the program, or on the functions without a caller. There is one
    finding for each given file; if there are many, for the first. The limits bound the time for
    every file.

    The finding concerns the analysis, not the program, so it does not change the exit code.

    ## Why is this bad?
    The code after this place is not checked, or not in every configuration. Rules about something
    that is missing are silent for such a program, and unused suppression comments are not
    reported. Check a real run with `fsdplint run`, which has no such limit; or give the files of
    one program at a time; or turn the rule off.
    """

    code, name = CUT_SHORT
    severity = Severity.INFO
    affects_exit_code = False
    bad: ClassVar[tuple[Bad, ...]] = (
        Bad(
            "from torch.distributed.fsdp import fully_shard\n\nmodel = make()\n"
            + "fully_shard(model)\n" * 3,
            skip="stands for one with thousands of such lines",
        ),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()

    @classmethod
    def of(cls, program: Program) -> list[Finding]:
        """The findings in a program; if many files are too large, one finding for all."""
        cuts = [cut for cut in program.cuts.values() if cut.named_by_user]
        more = len(cuts) - 1
        if more < MANY:
            return [cls._of(cut) for cut in cuts]
        finding = cls._of(cuts[0])
        finding.message += f"; the same applies to {more} more files of it"
        return [finding]

    @classmethod
    def _of(cls, cut: Cut) -> Finding:
        return Finding(
            rule=cls,
            site=cut.site,
            message=f"the program is too large: {cut.reason}",
            help="`fsdplint run` checks a real run of it, which has no such bound",
            related=() if cut.inner is None else ((cut.inner, "followed up to here"),),
        )


META_RULES: tuple[type[Rule], ...] = (UnreadableFile, UnusedSuppression, CutShort)
