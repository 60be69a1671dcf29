"""FSDP322: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.kept_weights import Shared, shared_weights, weights_put_back


class KeptWeightsNoCopy(Rule):
    """The weights that a program keeps and puts back later share the memory of the parameters.

    ## What it does
    Finds a state dict of a model that `fully_shard` shards (`state_dict()`, `get_model_state_dict`, `get_state_dict`)
    that is loaded into the same model again after the weights have changed: by a step of the optimizer, or because
    the program has set others, such as an average for an evaluation. Nothing in between copies the state, edits it,
    or loads a checkpoint into it.

    Also finds `parameter.copy_(kept[name])`, where `kept` has the parameters themselves (`p.detach()`, `p.data`), and
    a second model, such as a reference policy or a target network, that gets such a state in a loop with
    `load_state_dict(state, assign=True)` and is called after a step of the first.

    ## Why is this bad?
    The state of a sharded model has the parameters themselves, and `detach()` gives a tensor with the same memory.
    Whatever changes the weights changes what the program keeps, so that it puts back what is there already. There
    is no error. After an evaluation with averaged weights, two ranks print the distance of the weights from those
    before it:

        without a copy: 0.19
        with a copy: 0.00

    The model then trains on with the average, and the "best" weights of a training are those of its last step.

    Copy the tensors: `{name: t.clone() for name, t in model.state_dict().items()}`, or `copy.deepcopy`.

    ## Since
    torch 2.4, the first with FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (`state_dict`: references to the parameters)
    - https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html (`best_model_state` and `deepcopy`)
    """

    code = "FSDP322"
    name = "kept-weights-no-copy"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in weights_put_back(trace):
            if found.put_back.site in seen:
                continue
            seen.add(found.put_back.site)
            kept = [(found.kept, "kept without a copy here")] if found.kept is not None else []
            yield self.finding(
                found.put_back,
                f"this puts no other weights into `{class_name(trace, found.model)}`: what was kept has "
                "the parameters themselves",
                help="Copy the tensors that are kept: `t.clone()`, or `copy.deepcopy` of the state.",
                because=[
                    *kept,
                    (found.changed, "the weights change here, and what was kept with them"),
                ],
            )
        for shared in shared_weights(trace):
            if shared.load.site not in seen:
                seen.add(shared.load.site)
                yield self._shared_parameters(trace, shared)

    def _shared_parameters(self, trace: Trace, shared: Shared) -> Finding:
        """A second model that has the parameters of the first, and no older ones."""
        model, other = class_name(trace, shared.model), class_name(trace, shared.load.into)
        return self.finding(
            shared.load,
            f"`assign=True` puts the parameters of `{model}` themselves into this `{other}`, so that the "
            "steps change both",
            help="Load the state without `assign=True`, which copies the values.",
            because=[
                (shared.changed, "the weights of both change here"),
                (shared.used, "used here as if it had older ones"),
            ],
        )
