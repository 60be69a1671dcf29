"""The helper functions that migrated files get for their states."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import test_compiled_state_forms
import test_optimizer_state_forms
import test_state_forms
from forms import HEAD, plan

PROGRAMS = {
    **test_state_forms.FORMS,
    **test_optimizer_state_forms.FORMS,
    **test_compiled_state_forms.FORMS,
}
FUNCTIONS = {
    "compiled sometimes": '''
        def name_optimizer_as_model(model, state):
            """Give names the `_orig_mod.` of compiled modules, which torch's getter leaves out."""
            if not state:
                return state
            names = {name.replace("_orig_mod.", ""): name for name in model.state_dict()}
            values = {names[name]: value for name, value in state["state"].items()}
            groups = [
                {**group, "params": [names[name] for name in group["params"]]}
                for group in state["param_groups"]
            ]
            return {"state": values, "param_groups": groups}


        def name_as_model(model, state):
            """Give names the `_orig_mod.` of compiled modules, which torch's getter leaves out."""
            names = {name.replace("_orig_mod.", ""): name for name in model.state_dict()}
            return {names[name]: value for name, value in state.items()}


        def without_compiled_names(state):
            """Take the `_orig_mod.` of compiled modules off names, as torch's setter wants them."""
            if not state:
                return state

            def plain(name):
                return name.replace("_orig_mod.", "")

            values = {plain(name): value for name, value in state["state"].items()}
            groups = [
                {**group, "params": [plain(name) for name in group["params"]]}
                for group in state["param_groups"]
            ]
            return {"state": values, "param_groups": groups}
        ''',
    "first rank of a group": '''
        def gather_state_dict(model):
            """Gather a model's whole state on the CPU of the first rank that shares it."""
            state = {}
            for name, value in model.state_dict().items():
                if isinstance(value, DTensor):
                    first = value.device_mesh.get_coordinate()[-1] == 0
                    value = value.full_tensor()
                    if not first:
                        continue
                state[name] = value.cpu()
            return state
        ''',
    "older names": '''
        def separate_steps(state):
            """Give each parameter a step of its own: in FSDP1's checkpoints, a unit shares one."""
            for values in state.get("state", {}).values():
                if "step" in values:
                    values["step"] = values["step"].clone()
            return state
        ''',
}


@pytest.mark.parametrize(("form", "function"), list(FUNCTIONS.items()), ids=list(FUNCTIONS))
def test_a_function_is_written_behind_the_last_one(
    form: str, function: str, tmp_path: Path
) -> None:
    (before,) = (before for name, (before, _) in PROGRAMS.items() if form in name)
    _, text = plan(tmp_path, before)
    last = HEAD[
        HEAD.index("            x = block(x)\n        return x\n") : HEAD.index("local_rank")
    ]
    assert last.rstrip() + "\n\n" + textwrap.dedent(function) + "\n\nlocal_rank" in text
