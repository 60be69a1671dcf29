"""Modules without parameters that a policy picks: FSDP2 would cast their inputs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

SCORES = """
class Scores(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.scores = Scores()

    def forward(self, x):
        x = self.up(x)
        return x * self.scores(x.float())


"""
PRECISION = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16)"
POLICY = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)"

FORMS = {
    "every module, and one has no parameters": (
        f"model = FSDP(Scored(), auto_wrap_policy=always_wrap_policy, {PRECISION})\n",
        f"""
        model = Scored()
        mp_policy = {POLICY}
        for module in reversed(list(model.modules())[1:]):
            if list(module.parameters(recurse=False)):
                fully_shard(module, mp_policy=mp_policy)
        fully_shard(model, mp_policy=mp_policy)
        """,
    ),
    "every module, in full precision": (
        "model = FSDP(Scored(), auto_wrap_policy=always_wrap_policy)\n",
        """
        model = Scored()
        for module in reversed(list(model.modules())[1:]):
            if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a lambda that picks it": (
        "model = FSDP(\n"
        "    Scored(),\n"
        "    auto_wrap_policy=functools.partial(\n"
        "        lambda_auto_wrap_policy, lambda_fn=lambda m: type(m) is Scores or type(m) is nn.Linear\n"
        "    ),\n"
        f"    {PRECISION},\n)\n",
        f"""
        model = Scored()
        mp_policy = {POLICY}
        for module in reversed(list(model.modules())[1:]):
            if (type(module) is Scores or type(module) is nn.Linear) and list(module.parameters()):
                fully_shard(module, mp_policy=mp_policy)
        fully_shard(model, mp_policy=mp_policy)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, SCORES + before)
    assert text.partition("scores(x.float())\n")[2].strip() == textwrap.dedent(after).strip()
