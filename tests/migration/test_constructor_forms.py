"""The text that each form of the constructor is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "rank 0's weights for an offloaded model with a buffer": (
        """
        class Scaled(Block):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(8))


        model = FSDP(
            Scaled(), cpu_offload=CPUOffload(offload_params=True), sync_module_states=True
        )
        """,
        """
        class Scaled(Block):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.ones(8))


        model = Scaled()
        full_parameters = dict(model.named_parameters())
        fully_shard(model, offload_policy=CPUOffloadPolicy())
        # All ranks start from rank 0's weights and buffers.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                full = full_parameters[name].to(parameter.device_mesh.device_type)
                parameter.copy_(distribute_tensor(full, parameter.device_mesh, parameter.placements))
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        del full_parameters
        """,
    ),
    "an offload that is always None": (
        """
        offload = None
        first, second = Net(), Net()
        model = FSDP(first, cpu_offload=offload)
        other = FSDP(second, cpu_offload=offload)
        """,
        """
        first, second = Net(), Net()
        model = fully_shard(first)
        other = fully_shard(second)
        """,
    ),
    "a function that gives memory to the ranks without weights": (
        """
        def empty(module: nn.Module):
            \"\"\"Weights come from rank 0.\"\"\"
            if dist.get_rank() != 0:
                module = module.to_empty(device=torch.device("cuda"), recurse=False)
                torch.cuda.empty_cache()
            return module


        model = FSDP(Net(), sync_module_states=True, param_init_fn=empty)
        """,
        """
        model = Net()
        full_state = model.state_dict()
        fully_shard(model)
        if any(p.is_meta for p in model.parameters()):
            model.to_empty(device=torch.device("cuda"))
        # All ranks start from rank 0's weights and buffers.
        set_model_state_dict(
            model,
            full_state,
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        del full_state
        """,
    ),
    "memory for what is on meta, if a variable decides about the offload": (
        """
        offload = None
        if "OFFLOAD" in os.environ:
            offload = CPUOffload(offload_params=True)
        model = FSDP(
            Net(),
            cpu_offload=offload,
            param_init_fn=lambda m: m.to_empty(device="cuda", recurse=False),
        )
        """,
        """
        offload = None
        if "OFFLOAD" in os.environ:
            offload = CPUOffloadPolicy()
        model = Net()
        fully_shard(model, offload_policy=offload or OffloadPolicy())
        if any(p.is_meta for p in model.parameters()):
            model.to_empty(device="cpu" if isinstance(offload, CPUOffloadPolicy) else "cuda")
            for buffer in model.buffers():
                buffer.data = buffer.data.to("cuda")
        """,
    ),
    "memory for what is on meta and perhaps offloaded": (
        """
        OFFLOAD = bool(os.environ.get("OFFLOAD"))
        model = FSDP(
            Net(),
            cpu_offload=CPUOffload(offload_params=True) if OFFLOAD else None,
            sync_module_states=True,
            device_id=local_rank,
            param_init_fn=lambda m: m.to_empty(device="cuda", recurse=False) if local_rank else None,
        )
        """,
        """
        OFFLOAD = bool(os.environ.get("OFFLOAD"))
        model = Net()
        full_state = model.state_dict()
        fully_shard(model, offload_policy=CPUOffloadPolicy() if OFFLOAD else OffloadPolicy())
        if any(p.is_meta for p in model.parameters()):
            model.to_empty(device="cpu" if OFFLOAD else "cuda")
            for buffer in model.buffers():
                buffer.data = buffer.data.to("cuda")
        # All ranks start from rank 0's weights and buffers.
        set_model_state_dict(
            model,
            full_state,
            options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
        )
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        del full_state
        """,
    ),
    "variables that only the constructor reads": (
        """
        flat = not args.keep and args.flat
        # Which device?
        device = 0
        if torch.xpu.is_available():
            device = torch.xpu.current_device()
        elif torch.cuda.is_available():
            device = torch.cuda.current_device()
        model = FSDP(Net(), device_id=device, use_orig_params=flat)
        """,
        """
        # Which device?
        model = fully_shard(Net())
        """,
    ),
    "a variable whose choice does more": (
        """
        if args.fast:
            device = torch.cuda.current_device()
            print("fast")
        else:
            device = local_rank
        model = FSDP(Net(), device_id=device)
        """,
        """
        if args.fast:
            device = torch.cuda.current_device()
            print("fast")
        else:
            device = local_rank
        model = fully_shard(Net())
        """,
    ),
    "same name": (
        "model = FSDP(Net(), device_id=local_rank)",
        "model = fully_shard(Net())",
    ),
    "a statement": (
        """
        model = Net()
        model = FSDP(model, use_orig_params=True)
        """,
        """
        model = Net()
        fully_shard(model)
        """,
    ),
    "a new name": (
        """
        net = Net()
        model = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({Block}))
        """,
        """
        net = Net()
        for module in reversed(list(net.modules())):
            if isinstance(module, Block):
                fully_shard(module)
        model = fully_shard(net)
        """,
    ),
    "a module that is built in the call": (
        "model = FSDP(Net().cuda(), auto_wrap_policy=ModuleWrapPolicy([Block, Masked]))",
        """
        model = Net().cuda()
        for module in reversed(list(model.modules())):
            if isinstance(module, (Block, Masked)):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "an attribute": (
        """
        class Trainer:
            def __init__(self, model):
                self.model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))


        Trainer(Net())
        """,
        """
        class Trainer:
            def __init__(self, model):
                for module in reversed(list(model.modules())):
                    if isinstance(module, Block):
                        fully_shard(module)
                self.model = fully_shard(model)


        Trainer(Net())
        """,
    ),
    "keyword for the module, and a comment": (
        """
        model = Net()
        # shard it
        model = FSDP(
            module=model,
            limit_all_gathers=True,  # waits
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,  # ZeRO-2
        )
        """,
        """
        model = Net()
        # shard it
        # ZeRO-2
        fully_shard(model, reshard_after_forward=False)
        """,
    ),
    "positional arguments": (
        "model = FSDP(Net(), None, ShardingStrategy.SHARD_GRAD_OP)",
        "model = fully_shard(Net(), reshard_after_forward=False)",
    ),
    "several keywords": (
        """
        model = FSDP(
            Net(),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            cpu_offload=CPUOffload(offload_params=True),
        )
        """,
        """
        model = Net()
        fsdp_kwargs = {
            "reshard_after_forward": False,
            "offload_policy": CPUOffloadPolicy(),
        }
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "no offloading": (
        """
        offload = CPUOffload(offload_params=False)
        model = FSDP(Net(), cpu_offload=offload)
        """,
        "model = fully_shard(Net())",
    ),
    "a dict of arguments that is shown": (
        """
        import logging
        logger = logging.getLogger(__name__)
        kwargs = {"use_orig_params": True}
        if os.environ.get("HYBRID"):
            kwargs["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
        if os.environ.get("HYBRID_O2"):
            kwargs["sharding_strategy"] = ShardingStrategy._HYBRID_SHARD_ZERO2
        print("arguments: " + str(kwargs), f"{kwargs}")
        logger.info("arguments %s", kwargs)
        model = FSDP(Net(), device_id=torch.device("cpu"), **kwargs)
        """,
        """
        import logging
        logger = logging.getLogger(__name__)
        kwargs = {
            "mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
        }
        if os.environ.get("HYBRID"):
            kwargs["mesh"] = init_device_mesh(
                "cpu",
                (dist.get_world_size() // torch.cuda.device_count(), torch.cuda.device_count()),
                mesh_dim_names=("replicate", "shard"),
            )
        if os.environ.get("HYBRID_O2"):
            kwargs["mesh"] = init_device_mesh(
                "cpu",
                (dist.get_world_size() // torch.cuda.device_count(), torch.cuda.device_count()),
                mesh_dim_names=("replicate", "shard"),
            )
            kwargs["reshard_after_forward"] = False
        print("arguments: " + str(kwargs), f"{kwargs}")
        logger.info("arguments %s", kwargs)
        model = fully_shard(Net(), **kwargs)
        """,
    ),
    "a dict of arguments of which only what is shown stays": (
        """
        kwargs = dict(use_orig_params=True)
        print(kwargs)
        model = FSDP(Net(), **kwargs)
        """,
        """
        kwargs = {}
        print(kwargs)
        model = fully_shard(Net())
        """,
    ),
    "comments in a dict of arguments": (
        """
        kwargs = dict(
            limit_all_gathers=True,  # keeps memory low
            # the default
            use_orig_params=True,
            # two steps of communication
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            cpu_offload=CPUOffload(False),
        )
        model = FSDP(Net(), **kwargs)
        """,
        """
        # two steps of communication
        kwargs = dict(reshard_after_forward=False)
        model = fully_shard(Net(), **kwargs)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
