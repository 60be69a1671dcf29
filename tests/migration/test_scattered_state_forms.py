"""The text that optimizer states of one rank, or of a part of the model, are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "a scattered state that the call chooses": (
        """
        model = FSDP(Net(), use_orig_params=True)
        optimizer = torch.optim.Adam(model.parameters())
        saved = torch.load("o.pt")
        scattered = FSDP.scatter_full_optim_state_dict(saved if dist.get_rank() == 0 else None, model)
        optimizer.load_state_dict(scattered)
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.Adam(model.parameters())
        saved = torch.load("o.pt")
        set_optimizer_state_dict(
            model,
            optimizer,
            (saved if dist.get_rank() == 0 else None) or {},
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        """,
    ),
    "a scattered state that an object chooses": (
        """
        class Trainer:
            def __init__(self):
                self.rank = dist.get_rank()
                self.model = FSDP(Net(), use_orig_params=True)
                self.optimizer = torch.optim.Adam(self.model.parameters())

            def load(self):
                saved = torch.load("o.pt")
                state = FSDP.scatter_full_optim_state_dict(
                    saved["optimizer"] if self.rank == 0 else None, self.model
                )
                self.rank = saved["rank"]
                self.optimizer.load_state_dict(state)


        Trainer().load()
        """,
        """
        class Trainer:
            def __init__(self):
                self.rank = dist.get_rank()
                self.model = fully_shard(Net())
                self.optimizer = torch.optim.Adam(self.model.parameters())

            def load(self):
                saved = torch.load("o.pt")
                state = (saved["optimizer"] if self.rank == 0 else None) or {}
                self.rank = saved["rank"]
                set_optimizer_state_dict(
                    self.model,
                    self.optimizer,
                    state,
                    options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
                )


        Trainer().load()
        """,
    ),
    "a scattered state for no optimizer": (
        """
        def load(model):
            state = None
            if dist.get_rank() == 0:
                state = torch.load("state.pt")
            # called on all ranks
            scattered = FSDP.scatter_full_optim_state_dict(state, model)
            print("loaded")


        load(FSDP(Net()))
        """,
        """
        def load(model):
            state = None
            if dist.get_rank() == 0:
                state = torch.load("state.pt")
            # called on all ranks
            del state  # FSDP1 did not load it into an optimizer either
            print("loaded")


        load(fully_shard(Net()))
        """,
    ),
    "a state of the first rank that a loop loads": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for net, opt in ((model, optimizer),):
            full = torch.load("state.pt") if dist.get_rank() == 0 else None
            opt.load_state_dict(FSDP.scatter_full_optim_state_dict(full, net))
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for net, opt in ((model, optimizer),):
            full = torch.load("state.pt") if dist.get_rank() == 0 else None
            set_optimizer_state_dict(
                net,
                opt,
                full or {},
                options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
            )
        """,
    ),
    "a state in a variable of rank 0": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if dist.get_rank() == 0:
            state = optimizer.state_dict()
            torch.save(state, "state.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        if dist.get_rank() == 0:
            torch.save(state, "state.pt")
        """,
    ),
    "a function that only one rank calls in one of its calls": (
        """
        def save(model, optimizer, rank):
            weights = model.state_dict()
            if rank == 0:
                state = {"model": weights, "optimizer": optimizer.state_dict()}
                torch.save(state, "state.pt")


        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        save(model, optimizer, dist.get_rank())
        if dist.get_rank() == 0:
            save(model, optimizer, dist.get_rank())
        """,
        """
        def save(model, optimizer, rank):
            weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            optimizer_state = get_optimizer_state_dict(
                model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )
            if rank == 0:
                state = {"model": weights, "optimizer": optimizer_state}
                torch.save(state, "state.pt")


        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        save(model, optimizer, dist.get_rank())
        if dist.get_rank() == 0:
            save(model, optimizer, dist.get_rank())
        """,
    ),
    "one rank's part of the optimizer's state": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        state = {"optimizer": optimizer.state_dict()}
        if dist.get_rank() == 0:
            torch.save(state, "last.pt")
        optimizer.load_state_dict(torch.load("last.pt")["optimizer"])
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        state = {"optimizer": get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )}
        if dist.get_rank() == 0:
            torch.save(state, "last.pt")
        set_optimizer_state_dict(
            model,
            optimizer,
            torch.load("last.pt")["optimizer"],
            options=StateDictOptions(full_state_dict=True),
        )
        """,
    ),
    "the state of an optimizer of some parts": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.AdamW([{"params": model.blocks.parameters(), "lr": 0.1}])
        state = optimizer.state_dict()
        if dist.get_rank() == 0:
            torch.save(state, "last.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.AdamW([{"params": model.blocks.parameters(), "lr": 0.1}])
        state = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        if dist.get_rank() == 0:
            torch.save(state, "last.pt")
        """,
    ),
    "the states of a rank that waits for the others": (
        """
        def save(model, optimizer):
            if dist.get_rank() != 0:
                return
            weights = model.state_dict()
            torch.save([weights, optimizer.state_dict()], "last.pt")

        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        if dist.get_rank() == 0:
            save(model, optimizer)
        """,
        """
        def save(model, optimizer):
            if dist.get_rank() != 0:
                return
            weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            torch.save([weights, get_optimizer_state_dict(
                model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            )], "last.pt")

        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        if dist.get_rank() == 0:
            save(model, optimizer)
        """,
    ),
    "the states of an object whose method one rank calls": (
        """
        class Saver:
            def __init__(self, net, optimizer):
                self.net, self.optimizer = net, optimizer

            def states(self):
                steps = self.optimizer.state_dict()
                return {"net": self.net.state_dict(), "steps": steps}

        net = FSDP(Net())
        saver = Saver(net, torch.optim.AdamW(net.parameters()))
        if local_rank == 0:
            torch.save(saver.states(), "last.pt")
        """,
        """
        class Saver:
            def __init__(self, net, optimizer):
                self.net, self.optimizer = net, optimizer

            def states(self):
                steps = get_optimizer_state_dict(
                    self.net,
                    self.optimizer,
                    options=StateDictOptions(full_state_dict=True, cpu_offload=True),
                )
                return {"net": get_model_state_dict(
                    self.net, options=StateDictOptions(full_state_dict=True)
                ), "steps": steps}

        net = fully_shard(Net())
        saver = Saver(net, torch.optim.AdamW(net.parameters()))
        if local_rank == 0:
            torch.save(saver.states(), "last.pt")
        """,
    ),
    "each rank's part of the optimizer's state": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        torch.save(optimizer.state_dict(), f"optimizer_{dist.get_rank()}.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        torch.save(optimizer.state_dict(), f"optimizer_{dist.get_rank()}.pt")
        """,
    ),
    "the state of every rank": (
        """
        model = FSDP(Net())
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(offload_to_cpu=True)):
            state = model.state_dict()
            model.load_state_dict(state, strict=False)
        """,
        """
        model = fully_shard(Net())
        state = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
        set_model_state_dict(model, state, options=StateDictOptions(strict=False))
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
