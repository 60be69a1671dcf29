"""Functions of the program that give the context of `state_dict_type`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

FORMS = {
    "what it computes decides the options": (
        """
        def whole(model, rank0_only):
            offload = torch.cuda.is_available()
            return FSDP.state_dict_type(
                model,
                StateDictType.FULL_STATE_DICT,
                FullStateDictConfig(offload_to_cpu=offload, rank0_only=rank0_only),
                FullOptimStateDictConfig(offload_to_cpu=offload, rank0_only=rank0_only),
            )


        model = FSDP(Net())
        with whole(model, rank0_only=True):
            state = model.state_dict()
        with whole(model, rank0_only=False):
            model.load_state_dict(state)
        """,
        """
        model = fully_shard(Net())
        state = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        set_model_state_dict(
            model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        )
        """,
    ),
    "a static method": (
        """
        class Saver:
            @staticmethod
            def context(model):
                offload = torch.cuda.is_available()
                return FSDP.state_dict_type(
                    model,
                    StateDictType.SHARDED_STATE_DICT,
                    state_dict_config=ShardedStateDictConfig(offload_to_cpu=offload),
                )

            def save(self, model):
                with self.context(model):
                    return model.state_dict()


        model = FSDP(Net())
        state = Saver().save(model)
        """,
        """
        class Saver:
            def save(self, model):
                return get_model_state_dict(
                    model, options=StateDictOptions(cpu_offload=torch.cuda.is_available())
                )


        model = fully_shard(Net())
        state = Saver().save(model)
        """,
    ),
    "a literal chooses the kind": (
        """
        def context(model, kind="full"):
            \"\"\"The context of a kind of states.\"\"\"
            if kind == "full":
                return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
            if kind == "sharded":
                return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
            raise ValueError(kind)


        model = FSDP(Net())
        with context(model):
            whole = model.state_dict()
        with context(model, "sharded"):
            parts = model.state_dict()
        """,
        """
        model = fully_shard(Net())
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        parts = get_model_state_dict(model)
        """,
    ),
    "the model is a variable of the file": (
        """
        model = FSDP(Net())


        def whole():
            return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)


        def save():
            with whole():
                return model.state_dict()


        save()
        """,
        """
        model = fully_shard(Net())


        def save():
            return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


        save()
        """,
    ),
}
BLOCKED = {
    "an effect of its own": """
        def whole(model):
            dist.barrier()
            return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)


        model = FSDP(Net())
        with whole(model):
            state = model.state_dict()
        """,
    "a setting chooses the kind": """
        def context(model, kind):
            if kind == "full":
                return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)
            return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)


        model = FSDP(Net())
        with context(model, os.environ["KIND"]):
            state = model.state_dict()
        """,
    "another model of the same name": """
        model = FSDP(Net())


        def whole():
            return FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT)


        def save(model):
            with whole():
                return model.state_dict()


        save(Net())
        """,
    "options that only the function knows": """
        class Saver:
            @staticmethod
            def context(model, where):
                on_gpu = where
                offload = on_gpu
                return FSDP.state_dict_type(
                    model,
                    StateDictType.SHARDED_STATE_DICT,
                    ShardedStateDictConfig(offload_to_cpu=offload),
                )

            def save(self, model):
                with self.context(model, os.environ["GPU"] == "1"):
                    return model.state_dict()


        model = FSDP(Net())
        state = Saver().save(model)
        """,
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_context_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


@pytest.mark.parametrize("before", list(BLOCKED.values()), ids=list(BLOCKED))
def test_a_context_that_blocks(before: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, before)
    assert found.blockers and not text
