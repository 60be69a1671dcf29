"""The text that each form of state dicts and checkpoints is migrated to."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

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
    "local states that are saved and loaded": (
        """
        model = FSDP(Net())
        path = f"{dist.get_rank()}.pt"
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            torch.save(model.state_dict(), path)
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            model.load_state_dict(torch.load(path))
        """,
        """
        model = fully_shard(Net())
        path = f"{dist.get_rank()}.pt"
        torch.save(get_model_state_dict(model), path)
        set_model_state_dict(model, torch.load(path))
        """,
    ),
    "the first rank of a group": (
        """
        model = FSDP(Net(), process_group=dist.new_group([0, 1]))
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            state = model.state_dict()
        """,
        """
        model = fully_shard(Net(), mesh=DeviceMesh.from_group(dist.new_group([0, 1]), "cuda"))
        state = gather_state_dict(model)
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
    "offloading that is chosen at run time": (
        """
        def save(model, offload):
            config = ShardedStateDictConfig(offload_to_cpu=offload)
            with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, config):
                return model.state_dict()


        save(FSDP(Net()), bool(os.environ.get("OFFLOAD")))
        """,
        """
        def save(model, offload):
            config = StateDictOptions(cpu_offload=offload)
            return get_model_state_dict(model, options=config)


        save(fully_shard(Net()), bool(os.environ.get("OFFLOAD")))
        """,
    ),
    "ranks that are chosen at run time": (
        """
        def save(model, first_only=True):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=first_only)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                return model.state_dict()


        save(FSDP(Net()), not os.environ.get("EVERYWHERE"))
        """,
        """
        def save(model, first_only=True):
            config = StateDictOptions(full_state_dict=True, cpu_offload=first_only)
            return get_model_state_dict(model, options=config)


        save(fully_shard(Net()), not os.environ.get("EVERYWHERE"))
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
    "branches that are not taken": (
        """
        def save(m, path):
            state = m.state_dict()
            if dist.get_rank() == 0:
                torch.save(state, path)


        def main(clip=False, load=False):
            model = FSDP(Net())
            if load:
                model.load_state_dict(torch.load("x.pt"))
            if clip:
                model.clip_grad_norm_(1.0)
                save(model, "x")


        main()
        """,
        """
        def save(m, path):
            state = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
            if dist.get_rank() == 0:
                torch.save(state, path)


        def main(clip=False, load=False):
            model = fully_shard(Net())
            if load:
                set_model_state_dict(
                    model, torch.load("x.pt"), options=StateDictOptions(full_state_dict=True)
                )
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                save(model, "x")


        main()
        """,
    ),
    "a state that is loaded in a branch": (
        """
        def main(args):
            model = Net()
            if args.fsdp:
                model = FSDP(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
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
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = torch.load("x.pt")
        state["optimizer"] = FSDP.optim_state_dict_to_load(model, optimizer, state["optimizer"])
        optimizer.load_state_dict(state["optimizer"])
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = torch.load("x.pt")
        set_optimizer_state_dict(
            model, optimizer, state["optimizer"], options=StateDictOptions(full_state_dict=True)
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
            del state  # no optimizer was given it by FSDP1 either
            print("loaded")


        load(fully_shard(Net()))
        """,
    ),
    "a function for a wrapped model and another": (
        """
        def save(model, path):
            torch.save(model.state_dict(), path)

        save(FSDP(Net()), "a.pt")
        save(Net(), "b.pt")
        """,
        """
        def save(model, path):
            torch.save(get_model_state_dict(
                model, options=StateDictOptions(full_state_dict=True)
            ), path)

        save(fully_shard(Net()), "a.pt")
        save(Net(), "b.pt")
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
    (before,) = (before for name, (before, _) in FORMS.items() if form in name)
    _, text = plan(tmp_path, before)
    last = HEAD[
        HEAD.index("            x = block(x)\n        return x\n") : HEAD.index("local_rank")
    ]
    assert last.rstrip() + "\n\n" + textwrap.dedent(function) + "\n\nlocal_rank" in text


BLOCKED = {
    "one type or another": (
        "model = FSDP(Net())\nif os.environ.get('PARTS'):\n"
        "    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\nelse:\n"
        "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)\n"
        "state = model.state_dict()",
        "which of several types",
    ),
    "a function that others call too": (
        "def take(model):\n    return model.state_dict()\n\n\nmodel = FSDP(Net())\n"
        "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):\n"
        "    state = take(model)\nprint(take(model))",
        "code that this block calls",
    ),
    "a state that is loaded in another place": (
        "model = FSDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "if os.environ.get('RESUME'):\n"
        "    state = FSDP.optim_state_dict_to_load(model, optimizer, torch.load('x.pt'))\n"
        "    print('loaded')\noptimizer.load_state_dict(state)",
        "what becomes of this optimizer state",
    ),
    "a model that is another one in the branch": (
        "def main(load=False):\n    model = FSDP(Net())\n    if load:\n"
        "        model = other(model)\n        model.load_state_dict(torch.load('x.pt'))\n\n\nmain()",
        "does not reach",
    ),
    "a type that another function decides": (
        "def setup(model, first_only):\n"
        "    config = FullStateDictConfig(rank0_only=first_only)\n"
        "    FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT, config)\n\n\n"
        "model = FSDP(Net())\nsetup(model, bool(os.environ.get('FIRST')))\n"
        "state = model.state_dict()",
        "what the config of this state says at run time",
    ),
    "ranks of an optimizer's state that are chosen at run time": (
        "model = FSDP(Net())\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "config = FullOptimStateDictConfig(rank0_only=bool(os.environ.get('FIRST')))\n"
        "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, None, config):\n"
        "    state = FSDP.optim_state_dict(model, optimizer)",
        "`rank0_only` is only known at run time",
    ),
    "a model of a library that saves itself in its own way": (
        "from diffusers import UNet2DModel\nmodel = FSDP(UNet2DModel())\nmodel.save_pretrained('x')",
        "takes the state by itself",
    ),
    "a part of what is wrapped": (
        "model = FSDP(Net())\nstate = model.blocks.state_dict()",
        "a part of the wrapped model, which FSDP1 does not certainly wrap by itself",
    ),
    "a model with wrapped parts, in code that is not reached": (
        "def main(save=False):\n    model = Net()\n    model.blocks[0] = FSDP(model.blocks[0])\n"
        "    model(1)\n    if save:\n        torch.save(model.state_dict(), 'x')\n\n\nmain()",
        "does not reach",
    ),
    "local states for others": (
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):\n"
        "    state = model.state_dict()",
        "flat parameters .* that is not loaded here",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_has_no_rewrite_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body + "\n")
    assert found.blockers
    assert any(re.search(reason, blocker.reason) for blocker in found.blockers)
    assert not found.edits
