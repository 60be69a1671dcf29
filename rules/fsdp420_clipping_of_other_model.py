"""FSDP420: see the class."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import Trace
from fsdplint.trace.queries.common import class_name
from fsdplint.trace.queries.unclipped_steps import steps_without_clipping


class ClippingOfOtherModel(Rule):
    """The gradients of a model that is not trained are clipped, and those of the trained model are not.

    ## What it does
    Finds gradient clipping between the backward pass and the optimizer step of a sharded model that gets
    the parameters of another model: one that no optimizer trains, and that is frozen or only called without
    gradients, such as the teacher of a distillation or a reference model.

    Also finds two optimizers with the parameters of the same model, if one of them steps after the clipping of
    another model that no optimizer has, such as the discriminator of a GAN.

    It reports nothing if the step's own gradients are clipped, too.

    ## Why is this bad?
    The clipped parameters have no gradients, so the clipping does nothing and returns a norm of 0, without
    an error. The gradients of the trained model stay as large as they are: on two ranks, the program
    printed a norm of 0.00, and the gradient that the step used had a norm of 44.09 with a bound of 1.

    With the optimizer of another model, the clipped model does get gradients, and its weights never change.

    ## Since
    All versions, with FSDP1 and FSDP2.

    ## References
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    """

    code = "FSDP420"
    name = "clipping-of-other-model"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for found in steps_without_clipping(trace):
            if found.clipped.site in seen:
                continue
            seen.add(found.clipped.site)
            other, trained = class_name(trace, found.other), class_name(trace, found.trained)
            which = f"`{other}`, which" if other != trained else f"a `{other}` that"
            yield self.finding(
                found.clipped,
                f"the clipping gets the parameters of {which} no optimizer trains, and the gradients of the "
                f"trained `{trained}` are not clipped",
                help="Clip the gradients of the model that the optimizer trains.",
                because=[
                    (found.backward, "gradients computed here"),
                    (found.step, "used here without clipping"),
                ],
            )
