"""The text that states of parts, and of models that save themselves, are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a model that is not wrapped, with parts that are": (
        """
        model = Net()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = FSDP(block)
        state = model.state_dict()
        model.load_state_dict(state)
        """,
        """
        model = Net()
        for i, block in enumerate(model.blocks):
            model.blocks[i] = fully_shard(block)
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
        """,
    ),
    "parts that the policy wraps": (
        """
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        state = model.blocks.state_dict()
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        fully_shard(model)
        state = get_model_state_dict(model.blocks, options=StateDictOptions(full_state_dict=True))
        """,
    ),
    "the state of a part": (
        """
        model = FSDP(Net())
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.blocks.state_dict()
        """,
        """
        model = fully_shard(Net())
        state = get_model_state_dict(model.blocks, options=StateDictOptions(full_state_dict=True))
        """,
    ),
    "models of libraries that save themselves": (
        """
        from transformers import AutoModel

        model = FSDP(AutoModel.from_pretrained("model"))
        model.save_pretrained("out", safe_serialization=True)
        model.module.encoder.save_pretrained(
            "encoder",  # a part
        )
        if isinstance(model, FSDP):
            model.save_pretrained("out", state_dict=model.state_dict())
        else:
            model.save_pretrained("out")
        """,
        """
        from transformers import AutoModel

        model = fully_shard(AutoModel.from_pretrained("model"))
        model.save_pretrained(
            "out",
            safe_serialization=True,
            state_dict=get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),
        )
        model.encoder.save_pretrained(
            "encoder", state_dict=get_model_state_dict(model.encoder, options=StateDictOptions(full_state_dict=True)),  # a part
        )
        if isinstance(model, FSDPModule):
            model.save_pretrained("out", state_dict=get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ))
        else:
            model.save_pretrained("out")
        """,
    ),
    "a library that is given the state": (
        """
        model = FSDP(Net())
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.state_dict()
            if dist.get_rank() == 0:
                model.save_pretrained("out", state_dict=state)
        """,
        """
        model = fully_shard(Net())
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(model, options=config)
        if dist.get_rank() == 0:
            model.save_pretrained("out", state_dict=state)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
