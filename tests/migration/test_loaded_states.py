"""States of optimizers that reach `load_state_dict` in other ways than in a variable."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

BEFORE = """\
class Holder:
    pass


model = FSDP(Net(), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
saved = torch.load("state.pt")
"""
AFTER = """\
class Holder:
    pass


model = fully_shard(Net())
optimizer = torch.optim.AdamW(model.parameters())
saved = torch.load("state.pt")
"""
LOAD = "FSDP.optim_state_dict_to_load(model, optimizer, saved)"
SET = """\
set_optimizer_state_dict(
    model, optimizer, {}, options=StateDictOptions(full_state_dict=True)
)
"""
BODIES = {
    "two names": (f"copy = state = {LOAD}", "state", "copy = state = saved"),
    "a tuple": (f"state, rest = {LOAD}, 3", "state", "state, rest = saved, 3"),
    "a starred target": (f"state, *rest = [{LOAD}, 3]", "state", "state, *rest = [saved, 3]"),
    "a list": (
        f"state = [{LOAD} for _ in range(1)][0]",
        "state",
        "state = [saved for _ in range(1)][0]",
    ),
    "a choice": (
        f"state = {LOAD} if args.resume else None",
        "state",
        "state = saved if args.resume else None",
    ),
    "an attribute": (
        f"holder = Holder()\nholder.state = {LOAD}",
        "holder.state",
        "holder = Holder()\nholder.state = saved",
    ),
    "a test for None": (
        f"if (state := {LOAD}) is None:\n    print()",
        "state",
        "if (state := saved) is None:\n    print()",
    ),
    "another variable": (f"first = {LOAD}\nstate = first", "state", "first = saved\nstate = first"),
    "a function": (
        f"def same(value):\n    return value\n\n\nstate = same({LOAD})",
        "state",
        "def same(value):\n    return value\n\n\nstate = same(saved)",
    ),
}


@pytest.mark.parametrize(("body", "name", "after"), list(BODIES.values()), ids=list(BODIES))
def test_the_call_that_loads_it_is_found(body: str, name: str, after: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"{BEFORE}{body}\noptimizer.load_state_dict({name})\n")
    assert text.strip() == f"{AFTER}{after}\n{SET.format(name)}".strip()


OTHER_USES = {
    "saved": f"copy = state = {LOAD}\ntorch.save(copy, 'copy.pt')",
    "in a container": f"parts = [{LOAD}, 3]\nstate = parts[0]\ntorch.save(parts, 'copy.pt')",
    "in a function": textwrap.dedent(
        f"""\
        def same(value):
            torch.save(value, "copy.pt")
            return value


        state = same({LOAD})"""
    ),
    "loaded twice": f"copy = state = {LOAD}\nother.load_state_dict(copy)",
    "another choice": f"state = {LOAD} if args.fsdp else saved",
    "in a branch": f"if args.fsdp:\n    copy = state = {LOAD}\n    print()",
    "a test": f"copy = state = {LOAD}\nif copy:\n    print()",
}


@pytest.mark.parametrize("body", OTHER_USES.values(), ids=OTHER_USES)
def test_any_other_use_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, f"{BEFORE}{body}\noptimizer.load_state_dict(state)\n")
    assert any("how this optimizer state is used" in one.reason for one in found.blockers)
