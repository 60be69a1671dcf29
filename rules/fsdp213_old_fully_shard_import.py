"""FSDP213: see the class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Imported, Trace
from fsdplint.trace.torch_versions import ALIASES, COMPOSABLE, FSDP, GONE, HOMES, OLD, PUBLIC

if TYPE_CHECKING:
    from fsdplint.interpreter import Program


class OldFullyShardImport(Rule):
    """FSDP2 is imported from the private module that it had before torch 2.6.

    ## What it does
    Finds imports of FSDP2 from `torch.distributed._composable.fsdp` and the modules in it, and of
    `fully_shard` from `torch.distributed._composable`.

    An optional import (in a `try` that catches its failure, or under a test of torch's version) is fine. A program
    that has to run on torch 2.4 or 2.5 (`target-torch`, or a lower bound or pin of torch in the project's
    requirements) has to import FSDP2 from there and is not reported.

    ## Why is this bad?
    FSDP2 is in `torch.distributed.fsdp` since torch 2.6. The old modules in torch 2.13:

    - `torch.distributed._composable.fsdp` is a private module that stays for old programs. It has six names
      and gets no new ones: `AttributeError: module 'torch.distributed._composable.fsdp' has no attribute
      'share_comm_ctx'`, and `ImportError: cannot import name 'UnshardHandle'`.
    - The modules in it are gone, except `fully_shard`:
      `ModuleNotFoundError: No module named 'torch.distributed._composable.fsdp._fsdp_api'`.
    - `fully_shard` of `torch.distributed._composable` itself was another function (FSDP1 without its wrapper)
      and is gone: `ImportError: cannot import name 'fully_shard' from 'torch.distributed._composable'`.

    ## Fix safety
    Safe if the public names are the same objects: the import names `torch.distributed.fsdp`, which needs torch
    2.6. Unsafe for FSDP1's `torch.distributed._composable.fully_shard`; there is a fix only if its one argument is
    the module, because the other arguments (`policy`, `strategy`, `mixed_precision`) differ.

    ## Since
    torch 2.6, where FSDP2 became public.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    - https://github.com/pytorch/pytorch/pull/141875 (the move)
    - https://github.com/pytorch/torchtitan/issues/658
    """

    code = "FSDP213"
    name = "old-fully-shard-import"
    severity = Severity.WARNING
    fixable = Safety.SAFE
    fix_since = PUBLIC

    def check(self, trace: Trace) -> Iterable[Finding]:
        if trace.target is not None and trace.target.predates(PUBLIC):
            return
        for event in trace.of(Imported):
            message = None if event.optional else _problem(event)
            if message is not None:
                finding = self.finding(
                    event,
                    message,
                    help=f"Import it from `{FSDP}`, which has it since torch {PUBLIC}."
                    if not _is_fsdp1(event)
                    else f"Use `fully_shard` of `{FSDP}`; its arguments differ.",
                )
                finding.configuration = ()  # the name is old in every configuration
                yield finding

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.fixes.old_import import rewrite_import

        event = finding.events[0]
        assert isinstance(event, Imported)
        return rewrite_import(finding.site, event, fsdp1=_is_fsdp1(event))


def _is_fsdp1(event: Imported) -> bool:
    """Whether it is the function that was FSDP1 without its wrapper."""
    return event.package == f"{COMPOSABLE}.fully_shard" or (
        event.package == COMPOSABLE and "fully_shard" in event.names
    )


def _problem(event: Imported) -> str | None:
    """What is wrong with an import, in a sentence; None where nothing is."""
    package = event.package
    if _is_fsdp1(event):
        return f"`{COMPOSABLE}` has no `fully_shard` since torch {PUBLIC}; it was FSDP1 there"
    if package == COMPOSABLE:
        return _private_name_message(OLD) if "fsdp" in event.names else None
    if package != OLD and not package.startswith(f"{OLD}."):
        return None
    if package not in ALIASES:
        return f"`{package}` does not exist since torch {PUBLIC}"
    removed = [name for name in event.names if (package, name) in GONE]
    if removed:
        return f"`{package}` has no `{removed[0]}` since torch {PUBLIC}"
    known = not event.names or set(event.names) & {*HOMES[package], "*"}
    return _private_name_message(package) if known else None


def _private_name_message(package: str) -> str:
    return f"`{package}` is the private name that FSDP2 had before torch {PUBLIC}"
