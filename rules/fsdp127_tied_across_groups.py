"""FSDP127: see the class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.examples import Bad, Good, Symptom
from fsdplint.registry.rule import Rule
from fsdplint.trace import ModuleMoved, ParametersTied, Sharded, StateLoaded, Trace, first
from fsdplint.trace.groups import Groups, sharded_by
from fsdplint.trace.queries.common import unseen_before

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

MODEL = """\
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=16, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


"""

TRAIN = """\
dist.init_process_group("gloo")
torch.manual_seed(0)
model = LanguageModel()
SHARD
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.randint(0, 16, (4, 8))
nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
optimizer.step()
print("trained")
dist.destroy_process_group()
"""

TRAINER = """\
class Trainer:
    def __init__(self, options):
        self.model = LanguageModel()
        for layer in self.model.layers:
            fully_shard(layer, **options)
        # the embedding and the output layer are large
        fully_shard(self.model.embed, reshard_after_forward=False)
        fully_shard(self.model.head, reshard_after_forward=False)  # <- FSDP127
        fully_shard(self.model, **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, tokens):
        logits = self.model(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer({"reshard_after_forward": True}).step(torch.randint(0, 16, (4, 8)))
    print("trained")
    dist.destroy_process_group()
"""

BY_CLASS = """\
def apply_fsdp(model):
    for module in reversed(list(model.modules())):
        if isinstance(module, (Block, nn.Embedding)):
            fully_shard(module)
    fully_shard(model)  # <- FSDP127
    return model


dist.init_process_group("gloo")
torch.manual_seed(0)
model = apply_fsdp(LanguageModel())
model(torch.randint(0, 16, (4, 8))).sum().backward()
dist.destroy_process_group()
"""

SYMPTOM = Symptom(raises="is shared with a parameter already managed by another FSDP group")


def _script(*shard: str) -> str:
    return MODEL + TRAIN.replace("SHARD", "\n".join(shard))


class TiedAcrossGroups(Rule):
    """Two modules share a weight and are sharded in different groups.

    ## What it does
    Finds weights that one module takes from another (`self.head.weight = self.embed.weight`) before
    `fully_shard` puts the two modules into different communication groups: each by itself, or one by
    itself and the other with the root.

    Both in one group is fine: with the root, or by the list form. So is tying after the sharding and
    before the first forward.

    ## Why is this bad?
    Each group puts a parameter of its own in place of the shared one. Since torch 2.12 the first forward
    ends with `ValueError: Parameter 'head.weight' is shared with a parameter already managed by another
    FSDP group`. Older versions go on without a word, and the weights are tied no more.

    ## Fix safety
    Unsafe: the two modules are sharded as one group, `fully_shard([model.embed, model.head])`, which
    stays gathered from the forward of the first to that of the second. There is no fix where the
    modules are sharded in a loop or with different options.

    ## Since
    torch 2.12 for the error, 2.4 for the silent loss.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`; pytorch/pytorch#176225.
    - pytorch/torchtitan#2495, huggingface/accelerate#4171.
    """

    code = "FSDP127"
    name = "tied-across-groups"
    severity = Severity.ERROR
    fixable = Safety.UNSAFE

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        seen = set()
        for tie in trace.of(ParametersTied):
            pair = _groups_of(groups, tie)
            if pair is None or pair[1].site in seen:
                continue
            one, other = pair
            seen.add(other.site)
            names = [groups.name(tie.module), groups.name(tie.other or "")]
            yield self.finding(
                other,
                f"{names[0]} shares its {tie.name} with {names[1]}, and they are sharded in "
                f"different groups",
                help="Shard them as one group, `fully_shard([embedding, head])`, or leave both to "
                "the root.",
                because=[(one, "the other one is sharded here"), (tie, "tied here")],
            )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.fixes.one_group import shard_together

        other, one, tie = finding.events
        if not isinstance(other, Sharded) or not isinstance(one, Sharded):
            return None
        if not isinstance(tie, ParametersTied):
            return None
        rewrite = Rewrite()
        if not shard_together(rewrite, program, one, other, tie):
            return None
        return rewrite.fix("Shard the tied modules as one group", Safety.UNSAFE)

    bad = (
        Bad(
            code=_script(
                "fully_shard(model.embed)",
                "for layer in model.layers:",
                "    fully_shard(layer)",
                "fully_shard(model)  # <- FSDP127",
            ),
            symptom=SYMPTOM,
            changes=(("fully_shard(model.embed)\n", "fully_shard([model.embed, model.head])\n"),),
            healthy="trained",
        ),
        Bad(
            code=MODEL + TRAINER,
            symptom=SYMPTOM,
            changes=(
                (
                    "        fully_shard(self.model.embed, reshard_after_forward=False)\n"
                    "        fully_shard(self.model.head, reshard_after_forward=False)\n",
                    "        fully_shard([self.model.embed, self.model.head], "
                    "reshard_after_forward=False)\n",
                ),
            ),
            healthy="trained",
        ),
        Bad(code=MODEL + BY_CLASS, symptom=SYMPTOM),
    )

    good = (
        Good(
            why="one group for the two, by the list form",
            code=_script(
                "fully_shard([model.embed, model.head])",
                "for layer in model.layers:",
                "    fully_shard(layer)",
                "fully_shard(model)",
            ),
        ),
        Good(
            why="both are left to the root, as loops over the blocks do",
            code=_script(
                "for module in model.modules():",
                "    if isinstance(module, Block):",
                "        fully_shard(module)",
                "fully_shard(model)",
            ),
        ),
        Good(
            why="tied after the sharding, before the first forward",
            code=_script(
                "fully_shard(model.embed)",
                "fully_shard(model.head)",
                "fully_shard(model)",
                "model.head.weight = model.embed.weight",
            ).replace("        self.head.weight = self.embed.weight\n", ""),
        ),
        Good(
            why="a copy of the weight, and a tie that is undone before the sharding",
            code=_script(
                "model.head.weight = nn.Parameter(model.embed.weight.detach().clone())",
                "fully_shard(model.embed)",
                "fully_shard(model.head)",
                "fully_shard(model)",
            ),
        ),
    )


def _groups_of(groups: Groups, tie: ParametersTied) -> tuple[Sharded, Sharded] | None:
    """The different `fully_shard` calls that take the two modules, if they were tied until then."""
    trace = groups.trace
    if tie.other is None:
        return None
    takers: list[Sharded] = []
    for module in (tie.module, tie.other):
        taker = first(e for e in trace.of(Sharded) if module in groups.taken(e))
        if taker is None or taker.index < tie.index or not trace.certainty.of_module(taker):
            return None
        takers.append(taker)
    one, other = sorted(takers, key=lambda event: event.index)
    if one is other or set(sharded_by(one)) & set(sharded_by(other)):
        return None
    if any(name == "**" or name.startswith("ignored_") for e in takers for name in e.options):
        return None
    untied = any(_may_untie(trace, tie, event) for event in trace.events[tie.index + 1 : one.index])
    if untied or unseen_before(trace, tie.module, other) or unseen_before(trace, tie.other, other):
        return None
    return one, other


def _may_untie(trace: Trace, tie: ParametersTied, event: object) -> bool:
    """Whether the modules may have parameters of their own after the event."""
    if isinstance(event, ParametersTied):
        return event.module in {tie.module, tie.other}
    if isinstance(event, ModuleMoved):
        return event.method == "to_empty" and trace.related(event.module, tie.module)
    return isinstance(event, StateLoaded) and trace.related(event.into, tie.module)
