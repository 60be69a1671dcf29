"""The text that meshes, process groups and strategies of the constructor are migrated to."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
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
    "a mesh for hybrid strategies only": (
        """
        strategy = ShardingStrategy[os.environ["STRATEGY"]]
        if strategy in [ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2]:
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("node", "rank"))
        else:
            mesh = None
        model = FSDP(Net(), sharding_strategy=strategy, device_mesh=mesh)
        """,
        """
        strategy = os.environ["STRATEGY"]
        if strategy in ["HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"]:
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("node", "rank"))
        else:
            mesh = None


        def mesh_for_strategy(mesh, strategy):
            \"\"\"The mesh to shard over: some strategies have one of their own.\"\"\"
            if strategy == "NO_SHARD":
                return init_device_mesh(
                    "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
                )
            return mesh


        model = Net()
        fsdp_kwargs = {}
        if strategy in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
            fsdp_kwargs["reshard_after_forward"] = False
        fully_shard(model, **fsdp_kwargs, mesh=mesh_for_strategy(mesh, strategy))
        """,
    ),
    "a mesh for the strategy that replicates over it": (
        """
        strategy = (
            ShardingStrategy.HYBRID_SHARD if "TWO" in os.environ else ShardingStrategy.FULL_SHARD
        )
        mesh = None
        if strategy == ShardingStrategy.HYBRID_SHARD:
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("node", "rank"))
        model = FSDP(Net(), sharding_strategy=strategy, device_mesh=mesh)
        """,
        """
        strategy = (
            "HYBRID_SHARD" if "TWO" in os.environ else "FULL_SHARD"
        )
        mesh = None
        if strategy == "HYBRID_SHARD":
            mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("node", "rank"))
        model = fully_shard(Net(), mesh=mesh)
        """,
    ),
    "the group of all ranks": (
        """
        group = dist.group.WORLD
        model = FSDP(Net(), process_group=dist.group.WORLD)
        other = FSDP(
            Net(), process_group=group, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP
        )
        """,
        """
        model = fully_shard(Net())
        other = fully_shard(Net(), reshard_after_forward=False)
        """,
    ),
    "a group that is always None": (
        """
        group = None
        model = FSDP(Net(), process_group=group, sharding_strategy=ShardingStrategy.FULL_SHARD)
        print(model.process_group.size())
        """,
        """
        model = fully_shard(Net())
        print(dist.group.WORLD.size())
        """,
    ),
    "the group of all ranks, and a strategy that replicates": (
        "model = FSDP(\n    Net(), process_group=dist.group.WORLD,\n"
        "    sharding_strategy=ShardingStrategy.NO_SHARD,\n)",
        """
        model = fully_shard(
            Net(),
            mesh=init_device_mesh(
                "cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard")
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
    "a strategy that is chosen, on the CPU": (
        """
        model = FSDP(
            Net(),
            sharding_strategy=ShardingStrategy[os.environ["STRATEGY"]],
            device_id=torch.device("cpu"),
        )
        """,
        """
        def sharding_arguments(strategy):
            \"\"\"The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"\"\"
            if strategy == "NO_SHARD":
                shape = (dist.get_world_size(), 1)
            elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
                per_node = torch.cuda.device_count()
                shape = (dist.get_world_size() // per_node, per_node)
            else:
                mesh = init_device_mesh("cpu", (dist.get_world_size(),))
                if strategy == "SHARD_GRAD_OP":
                    return {"mesh": mesh, "reshard_after_forward": False}
                return {"mesh": mesh}
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
            arguments = {"mesh": mesh}
            if strategy == "_HYBRID_SHARD_ZERO2":
                arguments["reshard_after_forward"] = False
            return arguments


        model = fully_shard(Net(), **sharding_arguments(os.environ["STRATEGY"]))
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


SEVERAL_KINDS = """
shards, copies = dist.new_group([0, 1]), dist.new_group([0, 1])
if os.environ["MODE"] == "hybrid":
    model = FSDP(
        Net(),
        process_group=(shards, copies),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
    )
elif os.environ["MODE"] == "full":
    model = FSDP(Net(), process_group=shards)
else:
    model = FSDP(Net(), process_group=copies, sharding_strategy=ShardingStrategy.NO_SHARD)
"""


def test_each_kind_of_groups_has_its_function(tmp_path: Path) -> None:
    text = migrated(tmp_path, SEVERAL_KINDS)
    calls = re.findall(r"mesh=(\w[\w.]*)\(", text)
    assert calls == ["mesh_of_groups_2", "DeviceMesh.from_group", "mesh_of_groups"]


USED_NAMES = """
group = dist.new_group([0, 1])
name, parameter, full, buffer = "run", 0.1, True, []
model = FSDP(
    nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    process_group=group,
    sharding_strategy=ShardingStrategy.{strategy},
    sync_module_states=True,
    mixed_precision=MixedPrecision(buffer_dtype=torch.bfloat16),
)
print(group, name, parameter, full, buffer)
"""


@pytest.mark.parametrize("strategy", ["FULL_SHARD", "NO_SHARD"])
def test_variables_of_the_program_keep_their_values(tmp_path: Path, strategy: str) -> None:
    text = migrated(tmp_path, USED_NAMES.format(strategy=strategy))
    statements = ast.parse(text).body
    stored = [
        node.id
        for statement in statements
        if not isinstance(statement, ast.FunctionDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    for name in ("group", "name", "parameter", "full", "buffer"):
        assert stored.count(name) == 1, text


def test_a_group_that_may_be_set(tmp_path: Path) -> None:
    body = """
    group = None
    {0}
    model = FSDP(Net(), process_group=group)
    """
    for code in ("exec(open('settings.py').read())", "globals()['group'] = dist.new_group([0])"):
        assert "if group is not None else None" in migrated(tmp_path, body.replace("{0}", code))
