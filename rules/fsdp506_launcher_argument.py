"""FSDP506: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import LauncherArgumentUsed, Sharded, Trace, Wrapped, first

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class LauncherArgument(Rule):
    """The local rank comes from `--local_rank`, which torchrun does not pass.

    ## What it does
    Finds an argument `--local_rank` with a default of 0 or -1 whose value chooses the device or is
    compared with rank 0, in a program that does not read the environment variable `LOCAL_RANK`.

    ## Why is this bad?
    Only `python -m torch.distributed.launch` of torch before 2.0 passed `--local_rank` (since then it
    is `--local-rank`); torchrun sets `LOCAL_RANK` instead. The argument keeps its default in every
    process: all of them use GPU 0, or act as the first process. Two processes print:

        process 0 writes the log
        process 1 writes the log

    ## Fix safety
    Safe: the default becomes `int(os.environ.get("LOCAL_RANK", ...))` with the old default for a
    start without torchrun. An argument on the command line still wins.

    ## Since
    torch 1.9, the first with torchrun's predecessor; 2.0 for `torch.distributed.launch`.

    ## References
    - https://docs.pytorch.org/docs/stable/elastic/run.html (transitioning from torch.distributed.launch)
    """

    code = "FSDP506"
    name = "launcher-argument"
    severity = Severity.WARNING
    fixable = Safety.SAFE

    def check(self, trace: Trace) -> Iterable[Finding]:
        if not trace.complete or not trace.shardings():
            return
        sharded = first(event for event in trace if isinstance(event, Sharded | Wrapped))
        for event in trace.of(LauncherArgumentUsed):
            if event.overwritten or sharded is None:
                continue
            finding = self.finding(
                event,
                f"torchrun does not pass `{event.argument}`: the argument keeps its default in every process",
                help='Take the local rank from `os.environ["LOCAL_RANK"]`.',
            )
            if event.use is not None:
                finding.related = ((event.use, "used here"),)
            yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.syntax import argument, call_at

        found = call_at(finding.site)
        default = argument(found[1], 99, "default") if found is not None else None
        if found is None or default is None:
            return None
        source, call = found
        rewrite = Rewrite()
        os = rewrite.need_import(source, "os", at=call)
        old = source.code(default.value)
        rewrite.replace(source, default.value, f'int({os}.environ.get("LOCAL_RANK", {old}))')
        return rewrite.fix("Take the default from the environment", Safety.SAFE)
