"""Findings about the check itself: they come from no trace, and have a page like any other."""

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
    from fsdplint.interpreter.program import Cut


MANY = 4  # files of one program that are too large, beside the first: they are not all named


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
    bad: ClassVar[tuple[Bad, ...]] = (Bad("def train(:  # fsdp\n", skip="no Python"),)

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class UnusedSuppression(Rule):
    """A comment turns off what is not found there.

    ## What it does
    Finds comments (`noqa` with codes of fsdplint, `fsdplint: ignore`, `disable` and `file-ignore`)
    none of whose rules finds anything where they hold, and each `fsdplint: enable` that ends
    nothing. `--fix` takes the rule out of the comment, or the comment away; words behind it stay.

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
            skip="a comment",
        ),
    )

    def check(self, trace: Trace) -> Iterable[Finding]:
        return ()


class CutShort(Rule):
    """A program is too large to be followed to its end.

    ## What it does
    Says where the work on a program met its bound, once for each file that was given (of many, for
    the first): the steps, events or modules of one run, the configurations of the program, or the
    functions that nothing calls. Every file is gone through in bounded time.

    It says that something was not looked at, and nothing about the program: it leaves the exit
    code as it is.

    ## Why is this bad?
    What comes after the place is not checked there, or not in every configuration. Rules about
    something that is missing are silent for such a program, and comments that turn nothing off are
    not found. Check what it really does with `fsdplint run`, which has no such bound; or give the
    files of one program at a time; or turn the rule off.
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
        """The findings in a program; where it is so in many files, one that says so."""
        cuts = [cut for cut in program.cuts.values() if cut.named_by_user]
        more = len(cuts) - 1
        if more < MANY:
            return [cls._of(cut) for cut in cuts]
        found = cls._of(cuts[0])
        found.message += f"; so it is with {more} more files of it"
        return [found]

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
