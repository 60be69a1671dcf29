"""The text that blocks and calls which set the type of a state dict are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a type that is set and has no effect": (
        """
        model = FSDP(Net())
        FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
    ),
    "a type that another function sets": (
        """
        def setup(model):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, config)
            return model


        def save(model):
            return model.state_dict()


        save(setup(FSDP(Net())))
        """,
        """
        def setup(model):
            return model


        def save(model):
            return get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )


        save(setup(fully_shard(Net())))
        """,
    ),
    "a type in a variable that is read elsewhere": (
        """
        kind = StateDictType.SHARDED_STATE_DICT
        model = FSDP(Net())
        with FSDP.state_dict_type(model, kind):
            state = model.state_dict()
        if kind == StateDictType.SHARDED_STATE_DICT or getattr(StateDictType, "X") == kind:
            print(len(state))
        """,
        """
        kind = "SHARDED_STATE_DICT"
        model = fully_shard(Net())
        state = get_model_state_dict(model)
        if kind == "SHARDED_STATE_DICT" or "X" == kind:
            print(len(state))
        """,
    ),
    "types that are set one after the other": (
        """
        model, other = FSDP(Net()), FSDP(Net())
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
        parts = model.state_dict()
        whole = other.state_dict()
        FSDP.set_state_dict_type(
            model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)
        )
        if len(parts) > 1:
            whole = model.state_dict()
        """,
        """
        model, other = fully_shard(Net()), fully_shard(Net())
        parts = get_model_state_dict(model)
        whole = get_model_state_dict(other, options=StateDictOptions(full_state_dict=True))
        if len(parts) > 1:
            whole = get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )
        """,
    ),
    "several contexts at once": (
        """
        model = FSDP(Net())
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with torch.no_grad(), FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.state_dict()
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT), open("x", "wb") as file:
            state = model.state_dict()
        """,
        """
        model = fully_shard(Net())
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        with torch.no_grad():
            state = get_model_state_dict(model, options=config)
        with open("x", "wb") as file:
            state = get_model_state_dict(model)
        """,
    ),
    "one type within another, and a model that none is about": (
        """
        model, other = FSDP(Net()), FSDP(Net())
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            parts = model.state_dict()
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                whole = model.state_dict()
            others = other.state_dict()
        """,
        """
        model, other = fully_shard(Net()), fully_shard(Net())
        parts = get_model_state_dict(model)
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        others = get_model_state_dict(other, options=StateDictOptions(full_state_dict=True))
        """,
    ),
    "a context of the program's own": (
        """
        import contextlib


        @contextlib.contextmanager
        def whole(model):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                yield


        model = FSDP(Net())
        with whole(model):
            state = model.state_dict()
        """,
        """
        model = fully_shard(Net())
        state = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        """,
    ),
    "functions that a block calls": (
        """
        def take(model):
            return model.state_dict()


        def save(model, path):
            state = take(model)
            if dist.get_rank() == 0:
                torch.save(state, path)


        model = FSDP(Net())
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            save(model, "s.pt")
        """,
        """
        def take(model):
            return get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )


        def save(model, path):
            state = take(model)
            if dist.get_rank() == 0:
                torch.save(state, path)


        model = fully_shard(Net())
        save(model, "s.pt")
        """,
    ),
    "a method that gives the context": (
        """
        class Trainer:
            def __init__(self):
                self.on_gpu = torch.cuda.is_available()
                self.model = FSDP(Net())

            def full(self, rank0_only):
                offload = self.on_gpu
                config = FullStateDictConfig(offload_to_cpu=offload, rank0_only=rank0_only)
                return FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, config)

            def save(self):
                with self.full(rank0_only=True):
                    state = self.model.state_dict()
                torch.save(state, "model.pt")

            def load(self):
                with self.full(False):
                    self.model.load_state_dict(torch.load("model.pt"))


        trainer = Trainer()
        trainer.save()
        trainer.load()
        """,
        """
        class Trainer:
            def __init__(self):
                self.on_gpu = torch.cuda.is_available()
                self.model = fully_shard(Net())

            def save(self):
                state = get_model_state_dict(
                    self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
                )
                torch.save(state, "model.pt")

            def load(self):
                set_model_state_dict(
                    self.model, torch.load("model.pt"), options=StateDictOptions(full_state_dict=True)
                )


        trainer = Trainer()
        trainer.save()
        trainer.load()
        """,
    ),
    "a context that two functions use has its options in each": (
        """
        def sharded(model):
            config = ShardedStateDictConfig(offload_to_cpu=True)
            return FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config)


        def save(model):
            with sharded(model):
                for name in ("first.pt", "second.pt"):
                    dist.barrier()
                state = model.state_dict()
                again = model.state_dict()
            return state, again


        def load(model):
            with sharded(model):
                state = model.state_dict()
                model.load_state_dict(state)


        model = FSDP(Net(), use_orig_params=True)
        print(save(model))
        load(model)
        """,
        """
        def save(model):
            options = StateDictOptions(cpu_offload=True)
            for name in ("first.pt", "second.pt"):
                dist.barrier()
            state = get_model_state_dict(model, options=options)
            again = get_model_state_dict(model, options=options)
            return state, again


        def load(model):
            state = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
            set_model_state_dict(model, state)


        model = fully_shard(Net())
        print(save(model))
        load(model)
        """,
    ),
    "a type that a function sets which nothing calls": (
        """
        def save(model, path):
            FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
            if path:
                torch.save(model.state_dict(), path)


        def save_both(model, other, optimizer):
            state = model.state_dict()
            return state, other.state_dict(), FSDP.optim_state_dict(model, optimizer)


        print(FSDP(Net()))
        """,
        """
        def save(model, path):
            if path:
                torch.save(get_model_state_dict(
                    model, options=StateDictOptions(full_state_dict=True)
                ), path)


        def save_both(model, other, optimizer):
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            return state, other.state_dict(), get_optimizer_state_dict(
                model, optimizer, options=StateDictOptions(full_state_dict=True)
            )


        print(fully_shard(Net()))
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
