"""FSDP316: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Loaded, Saved, Trace
from fsdplint.trace.queries.checkpoint_formats import is_distributed, other_format


class CheckpointOfOtherFormat(Rule):
    """A file of `torch.save` is read as a distributed checkpoint, or the other way round.

    ## What it does
    Finds `torch.distributed.checkpoint.load` of a path that the program writes with `torch.save`, and
    `torch.load` of a path that it writes with `torch.distributed.checkpoint.save`.

    Paths that the program may write in both formats are not reported.

    ## Why is this bad?
    `torch.save` writes one file, and a distributed checkpoint is a folder with a part for each rank. Each
    function reads its own format only:

        AssertionError: metadata is None; global metadata read failed: [Errno 20] Not a directory
        IsADirectoryError: [Errno 21] Is a directory: 'checkpoint'

    `torch.distributed.checkpoint.format_utils` converts one format into the other.

    ## Since
    torch 2.2, the first with `torch.distributed.checkpoint.load`.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`dcp_to_torch_save`)
    """

    code = "FSDP316"
    name = "checkpoint-of-other-format"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(Loaded):
            saved = other_format(trace, event)
            if saved is None or event.site in seen:
                continue
            seen.add(event.site)
            yield self._finding(event, saved)

    def _finding(self, event: Loaded, saved: Saved) -> Finding:
        read, wrote = _function(event), _function(saved)
        advice = (
            "Write it with `torch.distributed.checkpoint.save`, or read it with `torch.load`."
            if is_distributed(event)
            else "Read it with `torch.distributed.checkpoint.load`."
        )
        return self.finding(
            event,
            f"`{read}` cannot read what `{wrote}` writes",
            help=advice,
            because=[(saved, "written here")],
        )


def _function(event: Loaded | Saved) -> str:
    """The function for messages: `dcp.load`."""
    return event.api.replace("torch.distributed.checkpoint.", "dcp.")
