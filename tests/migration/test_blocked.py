"""Programs that no rewrite of a single use can migrate: each says why, at the line."""

from __future__ import annotations

import fixture_runs
import pytest

from fsdplint.interpreter import load
from fsdplint.migration.planner import plans_of

FOLDER = fixture_runs.FIXTURES / "fsdp1_blocked"

# What stands in a line, and what is said of it.
BLOCKED = {
    "batch_norm.py": {"_module_classes_to_ignore=": "`_module_classes_to_ignore`"},
    "class_argument.py": {"parallelise(net, FSDP": "passed as an argument to `parallelise`"},
    "comm_hook.py": {"register_comm_hook": "communication hooks"},
    "custom_policy.py": {"CustomPolicy(wrap_or_not)": "gives single units their own `cpu_offload`"},
    "local_states.py": {"model.state_dict()": "LOCAL_STATE_DICT"},
    "partial_class.py": {
        "functools.partial(": "a partial of FSDP that does more than shard one module"
    },
    "state_settings.py": {
        "StateDictSettings": "get_state_dict_type",
        "StateDictConfig": "StateDictOptions",
        "set_state_dict_type": "only known at run time",
    },
    "subclass.py": {"class ProjectFSDP(FSDP)": "a subclass of FSDP"},
}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_a_blocker_is_named_at_its_line(name: str) -> None:
    (plan,) = plans_of(load([FOLDER / name]))
    assert not plan.edits
    left = dict(BLOCKED[name])
    for blocker in plan.blockers:
        line = blocker.source.position(blocker.source.span(blocker.node)[0])[0]
        text = blocker.source.line(line)
        found = [key for key in BLOCKED[name] if key in text]
        assert found, f"{line}: {blocker.reason}"
        if BLOCKED[name][found[0]] in blocker.reason:
            left.pop(found[0], None)
    assert not left
