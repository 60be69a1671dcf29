"""The text that each form of states of compiled models is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "the whole state of a compiled model": (
        """
        model = torch.compile(FSDP(Net()))
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
        model.load_state_dict(state)
        """,
        """
        model = torch.compile(fully_shard(Net()))
        state = {
            f"_orig_mod.{name}": value
            for name, value in get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ).items()
        }
        set_model_state_dict(
            model,
            {name.removeprefix("_orig_mod."): value for name, value in state.items()},
            options=StateDictOptions(full_state_dict=True),
        )
        """,
    ),
    "the states of a model that is compiled sometimes": (
        """
        model = FSDP(Net(), use_orig_params=True)
        if os.environ.get("COMPILE"):
            model = torch.compile(model)
        optimizer = torch.optim.AdamW(model.parameters())
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
            optim = FSDP.optim_state_dict(model, optimizer)
        model.load_state_dict(state)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, optim))
        """,
        """
        model = fully_shard(Net())
        if os.environ.get("COMPILE"):
            model = torch.compile(model)
        optimizer = torch.optim.AdamW(model.parameters())
        options = StateDictOptions(full_state_dict=True)
        state = name_as_model(model, get_model_state_dict(model, options=options))
        optim = name_optimizer_as_model(
            model, get_optimizer_state_dict(model, optimizer, options=options)
        )
        set_model_state_dict(
            model,
            {name.replace("_orig_mod.", ""): value for name, value in state.items()},
            options=StateDictOptions(full_state_dict=True),
        )
        set_optimizer_state_dict(
            model,
            optimizer,
            without_compiled_names(optim),
            options=StateDictOptions(full_state_dict=True),
        )
        """,
    ),
    "what a compiled model holds, in code that is not reached": (
        """
        def load(model, is_compiled=False):
            print(model)
            state = torch.load("model.pt")
            if is_compiled:
                model._orig_mod.load_state_dict(state)


        model = FSDP(Net(), use_orig_params=True)
        if os.environ.get("COMPILE"):
            model = torch.compile(model)
        load(model)
        """,
        """
        def load(model, is_compiled=False):
            print(model)
            state = torch.load("model.pt")
            if is_compiled:
                set_model_state_dict(
                    model._orig_mod,
                    {name.replace("_orig_mod.", ""): value for name, value in state.items()},
                    options=StateDictOptions(full_state_dict=True),
                )


        model = fully_shard(Net())
        if os.environ.get("COMPILE"):
            model = torch.compile(model)
        load(model)
        """,
    ),
    "an optimizer's state for a model of compiled parts": (
        """
        model = Net()
        for name, block in model.blocks.named_children():
            model.blocks.register_module(name, torch.compile(block))
        model = FSDP(model, use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters())
        reader = torch.distributed.checkpoint.FileSystemReader("checkpoint")
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state = torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict(
                model_state_dict=model.state_dict(), optimizer_key="adam", storage_reader=reader
            )
        loadable = FSDP.optim_state_dict_to_load(model, optimizer, state["adam"])
        optimizer.load_state_dict(loadable)
        """,
        """
        model = Net()
        for name, block in model.blocks.named_children():
            model.blocks.register_module(name, torch.compile(block))
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        reader = torch.distributed.checkpoint.FileSystemReader("checkpoint")
        state = {
            "adam": name_optimizer_as_model(model, get_optimizer_state_dict(model, optimizer)),
        }
        load(state, storage_reader=reader)
        set_optimizer_state_dict(model, optimizer, without_compiled_names(state["adam"]))
        """,
    ),
    "the sharded state of a compiled model": (
        """
        model = torch.compile(FSDP(Net()))
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            state = model.state_dict()
        """,
        """
        model = torch.compile(fully_shard(Net()))
        state = model.state_dict()
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
