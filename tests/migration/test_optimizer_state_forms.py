"""The text that each form of optimizer states is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "the older names of optimizer states": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        state = FSDP.full_optim_state_dict(model, optimizer)
        loadable = FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer)
        optimizer.load_state_dict(loadable)
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        state = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        set_optimizer_state_dict(
            model,
            optimizer,
            separate_steps(state or {}),
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        """,
    ),
    "steps that are each parameter's own": (
        """
        model = FSDP(Net(), use_orig_params=True)
        optimizer = torch.optim.AdamW(model.parameters())
        state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load("state.pt"))
        optimizer.load_state_dict(state)
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.AdamW(model.parameters())
        set_optimizer_state_dict(
            model, optimizer, torch.load("state.pt"), options=StateDictOptions(full_state_dict=True)
        )
        """,
    ),
    "an optimizer that keeps no state": (
        """
        model = FSDP(Net(), use_orig_params=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load("state.pt"))
        optimizer.load_state_dict(state)
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        set_optimizer_state_dict(model, optimizer, torch.load("state.pt"))
        """,
    ),
    "an optimizer's state that rank 0 saves": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if dist.get_rank() == 0:
            os.makedirs("out", exist_ok=True)
            torch.save({"optimizer": optimizer.state_dict(), "epoch": 1}, "out/state.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer_state = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )
        if dist.get_rank() == 0:
            os.makedirs("out", exist_ok=True)
            torch.save({"optimizer": optimizer_state, "epoch": 1}, "out/state.pt")
        """,
    ),
    "an optimizer of a model that DDP wraps instead": (
        """
        net = Net()
        if os.environ.get("STRATEGY") == "ddp":
            head = torch.nn.Linear(1, 1)
            model = torch.nn.parallel.DistributedDataParallel(net)
        else:
            model = FSDP(net)
        optimizer = torch.optim.AdamW(model.parameters())
        loaded = torch.load("state.pt", weights_only=True)
        model.load_state_dict(loaded["model"])
        if os.environ.get("RESUME"):
            optimizer.load_state_dict(loaded["optimizer"])
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "state.pt")
        """,
        """
        net = Net()
        if os.environ.get("STRATEGY") == "ddp":
            head = torch.nn.Linear(1, 1)
            model = torch.nn.parallel.DistributedDataParallel(net)
        else:
            model = fully_shard(net)
        optimizer = torch.optim.AdamW(model.parameters())
        loaded = torch.load("state.pt", weights_only=True)
        if isinstance(model, FSDPModule):
            set_model_state_dict(
                model, loaded["model"], options=StateDictOptions(full_state_dict=True)
            )
        else:
            model.load_state_dict(loaded["model"])
        if os.environ.get("RESUME"):
            if isinstance(model, FSDPModule):
                set_optimizer_state_dict(
                    model,
                    optimizer,
                    loaded["optimizer"],
                    options=StateDictOptions(full_state_dict=True),
                )
            else:
                optimizer.load_state_dict(loaded["optimizer"])
        torch.save({"model": get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        ) if isinstance(model, FSDPModule) else model.state_dict(), "optimizer": get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        ) if isinstance(model, FSDPModule) else optimizer.state_dict()}, "state.pt")
        """,
    ),
    "an optimizer's state that rank 0 saves now and then": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(9):
            if step % 3 == 0 and dist.get_rank() == 0:
                torch.save({"optimizer": optimizer.state_dict(), "step": step}, "state.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(9):
            if step % 3 == 0:
                optimizer_state = get_optimizer_state_dict(
                    model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
                )
            if step % 3 == 0 and dist.get_rank() == 0:
                torch.save({"optimizer": optimizer_state, "step": step}, "state.pt")
        """,
    ),
    "options that are there already": (
        """
        def save(model, optimizer):
            policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            optim_policy = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy, optim_policy):
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                }
                if dist.get_rank() == 0:
                    torch.save(state, "state.pt")


        model = FSDP(Net())
        save(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        """
        def save(model, optimizer):
            policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
            state = {
                "model": get_model_state_dict(model, options=policy),
                "optimizer": get_optimizer_state_dict(model, optimizer, options=policy),
            }
            if dist.get_rank() == 0:
                torch.save(state, "state.pt")


        model = fully_shard(Net())
        save(model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
    ),
    "an optimizer's state without FSDP": (
        """
        def main(args):
            model = Net()
            if args.fsdp:
                model = FSDP(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            state = FSDP.optim_state_dict(model, optimizer) if args.fsdp else optimizer.state_dict()
            if dist.get_rank() == 0:
                torch.save(state, "state.pt")


        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--fsdp", action="store_true")
        main(parser.parse_args())
        """,
        """
        def main(args):
            model = Net()
            if args.fsdp:
                fully_shard(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            state = get_optimizer_state_dict(
                model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
            ) if args.fsdp else optimizer.state_dict()
            if dist.get_rank() == 0:
                torch.save(state, "state.pt")


        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--fsdp", action="store_true")
        main(parser.parse_args())
        """,
    ),
    "a state that is loaded in a branch": (
        """
        def main(args):
            model = Net()
            if args.fsdp:
                model = FSDP(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            state = torch.load("x.pt")
            if args.fsdp:
                state = FSDP.optim_state_dict_to_load(model, optimizer, state)
            optimizer.load_state_dict(state)


        main(sys.argv)
        """,
        """
        def main(args):
            model = Net()
            if args.fsdp:
                fully_shard(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            state = torch.load("x.pt")
            if args.fsdp:
                set_optimizer_state_dict(
                    model, optimizer, state, options=StateDictOptions(full_state_dict=True)
                )
            else:
                optimizer.load_state_dict(state)


        main(sys.argv)
        """,
    ),
    "an entry of a checkpoint that is made loadable": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        state = torch.load("x.pt")
        state["optimizer"] = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
        optimizer.load_state_dict(state["optimizer"])
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        state = torch.load("x.pt")
        set_optimizer_state_dict(
            model, optimizer, state["optimizer"], options=StateDictOptions(full_state_dict=True)
        )
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
