"""FSDP215: see the class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.syntax.version_guards import is_under_version_test
from fsdplint.trace import Event, Fsdp2Used, Imported, Trace
from fsdplint.trace.queries.common import asked_for
from fsdplint.trace.torch_versions import (
    ARGUMENTS,
    FSDP,
    METHODS,
    NAMES,
    OLD,
    PRIVATE,
    PRIVATE_NAMES,
    Since,
)


class NewerThanTarget(Rule):
    """An API of FSDP2 is used that is newer than the torch that the program targets.

    ## What it does
    Finds methods of `FSDPModule`, arguments of `fully_shard` and names imported from `torch.distributed.fsdp`, or
    from its private home before torch 2.6 (`torch.distributed._composable.fsdp`), that the target torch does not have.

    The target has to be certain: `target-torch` (or `--target-torch`), or a pin or an upper bound of torch in every
    requirement of the project that names it (`torch==2.6.0`, `torch~=2.6.0`, `torch<2.8`). A lower bound alone
    (`torch>=2.4`) is no target, because the program may run with a newer torch. An API that the program tests for
    first (`hasattr`, a test of the version, a `try` around the import) is fine.

    ## Why is this bad?
    The use raises an ImportError, an AttributeError or a TypeError on that torch. (The versions come from the wheels
    of torch 2.2 to 2.15; the examples run on a newer torch, where nothing fails.)

    ## Since
    torch 2.3, the first with the private package; before, no FSDP2 can be imported.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://github.com/pytorch/pytorch/releases
    """

    code = "FSDP215"
    name = "newer-than-target"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterable[Finding]:
        target = trace.target
        if target is None or target.newest is None:
            return
        for event in trace.events:
            if is_under_version_test((guard.text, guard.site) for guard in event.guards):
                continue
            missing = [since for since in _newer_apis(event) if target.lacks(since.version)]
            if not missing:
                continue
            latest = missing[0]
            advice = f"Before, there is {latest.before}." if latest.before else ""
            yield self.finding(
                event,
                f"{latest.label} came with torch {latest.version}; {target.description()}",
                help=f"{advice} Test the version of torch first, or raise the target.".strip(),
            )


def _newer_apis(event: Event) -> Iterator[Since]:
    """The APIs of an event that not every torch with FSDP2 has."""
    if isinstance(event, Fsdp2Used) and not event.optional:
        head, _, argument = event.api.partition(".")
        since = ARGUMENTS.get(argument) if argument else METHODS.get(head)
        if since is not None and not asked_for(event, event.api):
            yield since
    elif isinstance(event, Imported) and not event.optional:
        if event.package == FSDP:
            yield from (NAMES[name] for name in event.names if name in NAMES)
        elif event.package == OLD:
            names = [PRIVATE_NAMES[name] for name in event.names if name in PRIVATE_NAMES]
            yield from names or [PRIVATE]
