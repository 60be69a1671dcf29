"""FSDP709: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.diagnostics.wording import names
from fsdplint.registry.rule import Rule
from fsdplint.trace import OptimizerBuilt, ParametersMissed, Trace
from fsdplint.trace.groups import shard_events, sharded_by
from fsdplint.trace.queries.common import class_name, optimizer_of
from fsdplint.trace.queries.missed_parameters import Missed, missed_parameters

_HELP = (
    "Pass them to the optimizer as well. If they should stay as they are, set their `requires_grad` "
    "to False before sharding, which also saves the reduction of their gradients."
)


class OptimizerMissesParameters(Rule):
    """Trainable parameters of a sharded model are in no optimizer.

    ## What it does
    Finds parameters of a sharded model that get gradients but are in no optimizer, while an optimizer
    holds other parameters of the model.

    Parameters that do not require gradients, that a second optimizer holds, or that the program updates
    itself are not reported. A model whose optimizer holds replaced parameters is not reported either
    (see FSDP103).

    `fsdplint run` compares the parameters of the optimizers with those of the model. A check evaluates the tests
    that select groups, such as `p.ndim >= 2` and `name.endswith("bias")`, for each parameter of the model. It reports
    only what the tests of at least two groups leave out: a single group may be a choice of what to train.

    ## Why is this bad?
    There is no error: these parameters keep their first values to the last digit while the others learn.
    Their gradients are computed and reduced over the ranks at every step. `optimizer.zero_grad()` does
    not reset them, so they grow from step to step. The usual causes are parameter groups that are selected
    by name or shape, and a module that is added after the optimizer is built.

    ## Since
    Always.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`, user contract: the optimizer has to be
      initialised with the DTensor parameters.
    - https://docs.pytorch.org/docs/stable/optim.html (per-parameter options)
    """

    code = "FSDP709"
    name = "optimizer-misses-parameters"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        for missed in missed_parameters(trace):
            yield self._left_out(trace, missed)
        seen: set[str] = set()
        for event in trace.of(ParametersMissed):
            built = optimizer_of(trace, event.optimizer)
            if event.module in seen or _sharded_later(trace, event, built):
                continue
            seen.add(event.module)
            count = len(event.parameters)
            model = class_name(trace, event.module)
            yield self.finding(
                built or event,
                f"{names(event.parameters, 'parameter')} of `{model}` "
                f"{'gets' if count == 1 else 'get'} gradients but {'is' if count == 1 else 'are'} in "
                f"no optimizer; this one has {event.trained_count} other parameters of the model",
                help=_HELP,
                because=[(event, "stepped here")] if built is not None else [],
            )

    def _left_out(self, trace: Trace, missed: Missed) -> Finding:
        """What the tests of the program show, without a run."""
        count = len(missed.paths)
        model = class_name(trace, missed.model)
        return self.finding(
            missed.built,
            f"{names(missed.paths, 'parameter')} of `{model}` {'is' if count == 1 else 'are'} in no "
            "optimizer: no test that selects the groups is true for "
            f"{'it' if count == 1 else 'them'}",
            help=_HELP,
            because=[(missed.step, "stepped here")],
        )


def _sharded_later(trace: Trace, event: ParametersMissed, built: OptimizerBuilt | None) -> bool:
    """Whether the model was sharded after the optimizer was built, which explains the finding."""
    if built is None:
        return False
    return any(
        trace.related(module, event.module)
        for shard in shard_events(trace, after=built, before=event)
        for module in sharded_by(shard)
    )
