"""The text that each form of the constructor, its meshes and strategies is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

FORMS = {
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
    "hybrid sharding": (
        "model = FSDP(Net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD)",
        """
        model = fully_shard(
            Net(),
            mesh=init_device_mesh(
                "cuda",
                (dist.get_world_size() // torch.cuda.device_count(), torch.cuda.device_count()),
                mesh_dim_names=("replicate", "shard"),
            ),
        )
        """,
    ),
    "a process group": (
        "model = FSDP(Net(), process_group=dist.new_group([0, 1]))",
        'model = fully_shard(Net(), mesh=DeviceMesh.from_group(dist.new_group([0, 1]), "cuda"))',
    ),
    "a process group, and a strategy from a dict": (
        """
        model = FSDP(
            Net(),
            process_group=dist.new_group([0, 1]),
            sharding_strategy={
                "fsdp": ShardingStrategy.FULL_SHARD,
                "sdp": ShardingStrategy.SHARD_GRAD_OP,
            }[os.environ["MODE"]],
            sync_module_states=True,
        )
        """,
        """
        model = Net()
        full_parameters = dict(model.named_parameters())
        mesh = DeviceMesh.from_group(dist.new_group([0, 1]), "cuda")
        fully_shard(
            model,
            **{"fsdp": {}, "sdp": {"reshard_after_forward": False}}[os.environ["MODE"]],
            mesh=mesh,
        )
        # All ranks of a group start from its first rank's weights and buffers.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                full = full_parameters[name].to(mesh.device_type)
                parameter.copy_(distribute_tensor(full, mesh, parameter.placements))
        for buffer in model.buffers():
            dist.broadcast(buffer, group=mesh.get_group(), group_src=0)
        del full_parameters
        """,
    ),
    "process groups of hybrid sharding": (
        """
        groups = (dist.new_group([0, 1]), dist.new_group([0, 2]))
        model = FSDP(Net(), process_group=groups, sharding_strategy=ShardingStrategy.HYBRID_SHARD)
        """,
        """
        groups = (dist.new_group([0, 1]), dist.new_group([0, 2]))


        def mesh_of_groups(group):
            \"\"\"The mesh for a process group to shard over, or for a pair of them: one to shard over and
            one to replicate over.
            \"\"\"
            if not isinstance(group, tuple):
                return DeviceMesh.from_group(group, "cuda")
            shard, replicate = group
            rows = [None] * replicate.size()
            dist.all_gather_object(rows, dist.get_process_group_ranks(shard), group=replicate)
            return DeviceMesh.from_group(
                [replicate, shard], "cuda", rows, mesh_dim_names=("replicate", "shard")
            )


        model = fully_shard(Net(), mesh=mesh_of_groups(groups))
        """,
    ),
    "a group, and no sharding in some cases": (
        """
        model = FSDP(
            Net(),
            process_group=dist.new_group([0, 1]),
            sharding_strategy={
                "sdp": ShardingStrategy.SHARD_GRAD_OP,
                "ddp": ShardingStrategy.NO_SHARD,
            }[os.environ["MODE"]],
        )
        """,
        """
        def mesh_of_groups(group, strategy):
            \"\"\"The mesh for a process group to shard over, or for a pair of them: one to shard over and
            one to replicate over.
            \"\"\"
            if strategy == "NO_SHARD":
                alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
                group = (alone, group)
            if not isinstance(group, tuple):
                return DeviceMesh.from_group(group, "cuda")
            shard, replicate = group
            rows = [None] * replicate.size()
            dist.all_gather_object(rows, dist.get_process_group_ranks(shard), group=replicate)
            return DeviceMesh.from_group(
                [replicate, shard], "cuda", rows, mesh_dim_names=("replicate", "shard")
            )


        model = Net()
        fsdp_sharding_strategy = {"sdp": "SHARD_GRAD_OP", "ddp": "NO_SHARD"}[os.environ["MODE"]]
        fsdp_kwargs = {}
        if fsdp_sharding_strategy == "SHARD_GRAD_OP":
            fsdp_kwargs["reshard_after_forward"] = False
        fully_shard(
            model, **fsdp_kwargs, mesh=mesh_of_groups(dist.new_group([0, 1]), fsdp_sharding_strategy)
        )
        """,
    ),
    "a mesh that may be None": (
        """
        from torch.distributed.device_mesh import init_device_mesh
        mesh = None
        if os.environ.get("NODES"):
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
        model = FSDP(Net(), device_mesh=mesh, sharding_strategy=ShardingStrategy[os.environ["MODE"]])
        """,
        """
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
        mesh = None
        if os.environ.get("NODES"):
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))


        def mesh_for_strategy(mesh, strategy):
            \"\"\"The mesh to shard over: some strategies have one of their own.\"\"\"
            if mesh is None and strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
                per_node = torch.cuda.device_count()
                return init_device_mesh(
                    "cuda",
                    (dist.get_world_size() // per_node, per_node),
                    mesh_dim_names=("replicate", "shard"),
                )
            if mesh is None and strategy == "NO_SHARD":
                return init_device_mesh(
                    "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
                )
            if strategy == "NO_SHARD":
                shard = dist.new_group([dist.get_rank()], use_local_synchronization=True)
                replicate = mesh.get_group(0)
                rows = [None] * replicate.size()
                dist.all_gather_object(rows, dist.get_process_group_ranks(shard), group=replicate)
                return DeviceMesh.from_group(
                    [replicate, shard], mesh.device_type, rows, mesh_dim_names=("replicate", "shard")
                )
            return mesh


        model = Net()
        fsdp_sharding_strategy = os.environ["MODE"]
        fsdp_kwargs = {}
        if fsdp_sharding_strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
            fsdp_kwargs["reshard_after_forward"] = False
        fully_shard(model, **fsdp_kwargs, mesh=mesh_for_strategy(mesh, fsdp_sharding_strategy))
        """,
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
    "a strategy that is chosen": (
        """
        strategy = ShardingStrategy.SHARD_GRAD_OP if os.environ.get("FAST") else ShardingStrategy.FULL_SHARD
        model = FSDP(Net(), sharding_strategy=strategy)
        """,
        """
        strategy = "SHARD_GRAD_OP" if os.environ.get("FAST") else "FULL_SHARD"
        model = Net()
        fsdp_kwargs = {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "a strategy that is chosen, and more": (
        """
        strategy = ShardingStrategy.SHARD_GRAD_OP if os.environ.get("FAST") else ShardingStrategy.FULL_SHARD
        model = FSDP(
            Net(),
            sharding_strategy=strategy,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            cpu_offload=CPUOffload(offload_params=True),
        )
        """,
        """
        strategy = "SHARD_GRAD_OP" if os.environ.get("FAST") else "FULL_SHARD"
        model = Net()
        fsdp_kwargs = {
            "offload_policy": CPUOffloadPolicy(),
        }
        if strategy == "SHARD_GRAD_OP":
            fsdp_kwargs["reshard_after_forward"] = False
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "a strategy that is chosen, in an expression": (
        """
        strategy = ShardingStrategy.SHARD_GRAD_OP if os.environ.get("FAST") else ShardingStrategy.FULL_SHARD
        models = [FSDP(net, sharding_strategy=strategy) for net in (Net(), Net())]
        """,
        """
        strategy = "SHARD_GRAD_OP" if os.environ.get("FAST") else "FULL_SHARD"
        models = [fully_shard(
            net, **({"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {})
        ) for net in (Net(), Net())]
        """,
    ),
    "a mesh": (
        """
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = FSDP(Net(), device_mesh=mesh, sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2)
        """,
        """
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = fully_shard(Net(), mesh=mesh, reshard_after_forward=False)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


NO_DEVICE = HEAD.replace("torch.cuda.set_device(local_rank)\n", "")


def test_the_device_is_set_where_the_program_does_not(tmp_path: Path) -> None:
    _, text = plan(tmp_path, "model = FSDP(Net(), device_id=local_rank)\n", NO_DEVICE)
    assert text.endswith("model = Net()\ntorch.cuda.set_device(local_rank)\nfully_shard(model)\n")


def test_the_device_is_set_where_there_is_one(tmp_path: Path) -> None:
    body = """
        device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        model = Net()
        model = FSDP(model, device_id=device)
    """
    _, text = plan(tmp_path, body, NO_DEVICE)
    assert text.endswith(
        "model = Net()\nif torch.cuda.is_available():\n    torch.cuda.set_device(device)\n"
        "fully_shard(model)\n"
    )


DEVICE = "torch.cuda.set_device({})\n"
MOVED = {
    "in the argument": (
        "model = FSDP(Net().to(local_rank))\n",
        "model = Net().to(local_rank)\n" + DEVICE.format("local_rank") + "fully_shard(model)\n",
    ),
    "before": (
        "model = Net().cuda(local_rank)\nprint(model)\nmodel = FSDP(model)\n",
        "print(model)\n" + DEVICE.format("local_rank") + "fully_shard(model)\n",
    ),
    "in a statement of its own, to a device with a name": (
        'device = torch.device(f"cuda:{local_rank}")\nmodel = Net()\nmodel.to(device)\n'
        "if local_rank >= 0:\n    model = FSDP(model)\n",
        "    " + DEVICE.format("device") + "    fully_shard(model)\n",
    ),
    "an attribute": (
        "class Trainer:\n    def __init__(self):\n        self.model = Net().to(local_rank)\n"
        "        self.model = FSDP(self.model)\n\n\nTrainer()\n",
        "        "
        + DEVICE.format("local_rank")
        + "        fully_shard(self.model)\n\n\nTrainer()\n",
    ),
}


@pytest.mark.parametrize(("body", "end"), list(MOVED.values()), ids=list(MOVED))
def test_the_device_of_the_model_is_set(body: str, end: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, body, NO_DEVICE)
    assert not found.blockers
    assert text.endswith(end)


NOT_MOVED = {
    "no index": 'model = FSDP(Net().to("cuda"))\n',
    "another model": "other = Net().to(local_rank)\nmodel = Net()\nmodel = FSDP(model)\n",
    "another model afterwards": (
        "model = Net().to(local_rank)\nif local_rank:\n    model = Net()\nmodel = FSDP(model)\n"
    ),
    "a dtype": "model = Net().to(torch.bfloat16)\nmodel = FSDP(model)\n",
    "a device that changes": (
        "model = Net().to(local_rank)\nlocal_rank = 0\nmodel = FSDP(model)\n"
    ),
}


@pytest.mark.parametrize("body", list(NOT_MOVED.values()), ids=list(NOT_MOVED))
def test_a_model_without_a_certain_device_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body, NO_DEVICE)
    assert "which device is this rank's" in found.blockers[0].reason


def test_no_device_at_all_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, "model = FSDP(Net())\n", NO_DEVICE)
    assert "which device is this rank's" in found.blockers[0].reason


def test_one_rank_needs_no_device(tmp_path: Path) -> None:
    alone = NO_DEVICE.replace('"nccl")', '"nccl", world_size=1, rank=0)')
    found, text = plan(tmp_path, "model = FSDP(Net())\n", alone)
    assert not found.blockers
    assert text.endswith("model = fully_shard(Net())\n")


DEEP = """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([wrap(Block()) for _ in range(2)])
        self.head = wrap(nn.Linear(8, 8))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(strategy, device):
    with enable_wrap(wrapper_cls=FSDP, device_id=device, sharding_strategy=STRATEGY):
        return wrap(Deep())


model = build(ShardingStrategy.SHARD_GRAD_OP, local_rank)
"""


WRAPPED = """\
    model = Deep()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model.head, reshard_after_forward=False)
    return fully_shard(model, reshard_after_forward=False)
"""


def test_units_of_a_constructor_are_sharded_after_it(tmp_path: Path) -> None:
    text = migrated(tmp_path, DEEP.replace("STRATEGY", "ShardingStrategy.SHARD_GRAD_OP"))
    assert "self.blocks = nn.ModuleList([Block() for _ in range(2)])" in text
    assert "self.head = nn.Linear(8, 8)\n" in text
    assert WRAPPED.replace("model", "sharded_model") in text and "wrap" not in text


def test_units_of_a_constructor_use_variables_of_the_block(tmp_path: Path) -> None:
    text = migrated(tmp_path, DEEP.replace("STRATEGY", "strategy"))
    assert "for block in sharded_model.blocks:\n        fully_shard(block, **fsdp_kwargs)" in text


def test_units_of_a_constructor_under_two_blocks(tmp_path: Path) -> None:
    body = DEEP.replace("STRATEGY", "ShardingStrategy.FULL_SHARD") + (
        "with enable_wrap(wrapper_cls=FSDP, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP):\n"
        "    other = wrap(Deep())\n"
        "plain = Deep()\n"
    )
    text = migrated(tmp_path, body)
    assert (
        WRAPPED.replace("model", "sharded_model").replace(", reshard_after_forward=False", "")
        in text
    )
    assert text.endswith(
        "fully_shard(other.head, reshard_after_forward=False)\n"
        "fully_shard(other, reshard_after_forward=False)\nplain = Deep()\n"
    )


NESTED = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = wrap(nn.Linear(8, 8))
        self.second = nn.Linear(8, 8)

    def forward(self, x):
        return self.second(self.first(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleDict({str(i): wrap(Inner()) for i in range(2)})

    def forward(self, x):
        for stage in self.stages.values():
            x = stage(x)
        return x


with enable_wrap(wrapper_cls=FSDP):
    net = Outer()
    net = wrap(net)
"""


def test_units_of_constructors_of_units(tmp_path: Path) -> None:
    text = migrated(tmp_path, NESTED)
    assert text.endswith(
        "net = Outer()\nfor module in net.stages.values():\n    fully_shard(module.first)\n"
        "    fully_shard(module)\nfully_shard(net)\n"
    )


UNCERTAIN = {
    "some of the elements": (
        "self.blocks = nn.ModuleList([wrap(Block()), Block()])",
        "fully_shard(sharded_model.blocks[0])",
    ),
    "under a condition": (
        "self.blocks = [Block()]\n        if os.environ.get('WRAPPED'):\n"
        "            self.blocks = nn.ModuleList([wrap(Block())])",
        "",
    ),
    "with arguments of its own": (
        "self.blocks = nn.ModuleList([wrap(Block(), use_orig_params=True)])",
        "",
    ),
    "in a class of its own": ("self.blocks = Blocks([wrap(Block())])", ""),
}


@pytest.mark.parametrize(("statement", "expected"), list(UNCERTAIN.values()), ids=list(UNCERTAIN))
def test_units_of_a_constructor_are_certain(statement: str, expected: str, tmp_path: Path) -> None:
    body = "class Blocks(nn.ModuleList):\n    pass\n\n" + DEEP.replace(
        "STRATEGY", "ShardingStrategy.FULL_SHARD"
    )
    body = body.replace("self.blocks = nn.ModuleList([wrap(Block()) for _ in range(2)])", statement)
    found, text = plan(tmp_path, body)
    if expected:
        assert expected in text
    else:
        assert any("which `enable_wrap` block" in one.reason for one in found.blockers)


def test_units_need_the_model_in_the_block(tmp_path: Path) -> None:
    body = (
        DEEP.partition("def build")[0] + "with enable_wrap(wrapper_cls=FSDP):\n    net = Deep()\n"
    )
    found, _ = plan(tmp_path, body + "model = FSDP(Net())\n")
    assert any("which `enable_wrap` block" in one.reason for one in found.blockers)
