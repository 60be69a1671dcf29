"""Strategies and process groups of FSDP1 that a program chooses or computes become meshes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

FORMS = {
    "the size of a group whose strategy is chosen": (
        """
        strategy = ShardingStrategy.SHARD_GRAD_OP if local_rank else ShardingStrategy.FULL_SHARD
        model = FSDP(Net(), sharding_strategy=strategy)
        print(f"{model.world_size} ranks")
        """,
        """
        strategy = "SHARD_GRAD_OP" if local_rank else "FULL_SHARD"
        model = Net()
        fsdp_kwargs = {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
        fully_shard(model, **fsdp_kwargs)
        print(f"{dist.get_world_size()} ranks")
        """,
    ),
    "the shard group of a strategy that is chosen": (
        """
        def build(strategy):
            return FSDP(Net(), sharding_strategy=strategy)


        def save(model):
            dist.barrier(model.process_group)


        save(build(ShardingStrategy.HYBRID_SHARD if local_rank else ShardingStrategy.FULL_SHARD))
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            if strategy != "HYBRID_SHARD":
                return {}
            per_node = torch.cuda.device_count()
            shape = (dist.get_world_size() // per_node, per_node)
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return {"mesh": mesh}


        def build(strategy):
            return fully_shard(Net(), **sharding_arguments(strategy))


        def save(model):
            dist.barrier(next(model.parameters()).device_mesh.get_group(-1))


        save(build("HYBRID_SHARD" if local_rank else "FULL_SHARD"))
        """,
    ),
    "strategies that all need a mesh": (
        """
        def build(strategy):
            return FSDP(Net(), sharding_strategy=strategy)


        build(ShardingStrategy.HYBRID_SHARD if local_rank else ShardingStrategy.NO_SHARD)
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            if strategy == "NO_SHARD":
                shape = (dist.get_world_size(), 1)
            else:
                per_node = torch.cuda.device_count()
                shape = (dist.get_world_size() // per_node, per_node)
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return {"mesh": mesh}


        def build(strategy):
            return fully_shard(Net(), **sharding_arguments(strategy))


        build("HYBRID_SHARD" if local_rank else "NO_SHARD")
        """,
    ),
    "two strategies with the same mesh": (
        """
        def build(strategy):
            return FSDP(Net(), sharding_strategy=strategy)


        build(ShardingStrategy.HYBRID_SHARD if local_rank else ShardingStrategy._HYBRID_SHARD_ZERO2)
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            per_node = torch.cuda.device_count()
            shape = (dist.get_world_size() // per_node, per_node)
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            arguments = {"mesh": mesh}
            if strategy == "_HYBRID_SHARD_ZERO2":
                arguments["reshard_after_forward"] = False
            return arguments


        def build(strategy):
            return fully_shard(Net(), **sharding_arguments(strategy))


        build("HYBRID_SHARD" if local_rank else "_HYBRID_SHARD_ZERO2")
        """,
    ),
    "a strategy that keeps the parameters, or replicates them": (
        """
        def build(strategy):
            return FSDP(Net(), sharding_strategy=strategy)


        build(ShardingStrategy.SHARD_GRAD_OP if local_rank else ShardingStrategy.NO_SHARD)
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            if strategy != "NO_SHARD":
                return {"reshard_after_forward": False}
            shape = (dist.get_world_size(), 1)
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return {"mesh": mesh}


        def build(strategy):
            return fully_shard(Net(), **sharding_arguments(strategy))


        build("SHARD_GRAD_OP" if local_rank else "NO_SHARD")
        """,
    ),
    "a strategy that is not always given": (
        """
        def build(strategy=None):
            return FSDP(Net(), sharding_strategy=strategy)


        build(ShardingStrategy.HYBRID_SHARD if local_rank else ShardingStrategy.NO_SHARD)
        build()
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            if strategy == "NO_SHARD":
                shape = (dist.get_world_size(), 1)
            elif strategy == "HYBRID_SHARD":
                per_node = torch.cuda.device_count()
                shape = (dist.get_world_size() // per_node, per_node)
            else:
                return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
            return {"mesh": mesh}


        def build(strategy=None):
            return fully_shard(Net(), **sharding_arguments(strategy))


        build("HYBRID_SHARD" if local_rank else "NO_SHARD")
        build()
        """,
    ),
    "the group of any strategy": (
        """
        def build(strategy):
            return FSDP(Net(), sharding_strategy=strategy)


        def save(model):
            dist.barrier(model.process_group)
            print(model.world_size)


        save(build(ShardingStrategy[os.environ["STRATEGY"]]))
        """,
        """
        def sharding_arguments(strategy):
            \"""The arguments of fully_shard for the name of one of FSDP1's sharding strategies.\"""
            if strategy == "NO_SHARD":
                shape = (dist.get_world_size(), 1)
                names = ("replicate", "alone")
            elif strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
                per_node = torch.cuda.device_count()
                shape = (dist.get_world_size() // per_node, per_node)
                names = ("replicate", "shard")
            else:
                return {"reshard_after_forward": False} if strategy == "SHARD_GRAD_OP" else {}
            mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
            arguments = {"mesh": mesh}
            if strategy == "_HYBRID_SHARD_ZERO2":
                arguments["reshard_after_forward"] = False
            return arguments


        def build(strategy):
            return fully_shard(Net(), **sharding_arguments(strategy))


        def sharding_group(model):
            \"""The processes that a model is sharded over, or all that it is replicated over.\"""
            mesh = next(model.parameters()).device_mesh
            return mesh.get_group(0 if mesh.mesh_dim_names == ("replicate", "alone") else -1)


        def save(model):
            dist.barrier(sharding_group(model))
            print(dist.get_world_size(sharding_group(model)))


        save(build(os.environ["STRATEGY"]))
        """,
    ),
    "a group that may be None": (
        """
        def build(group=None):
            model = FSDP(Net(), process_group=group)
            dist.barrier(model.process_group)


        build()
        build(dist.new_group([0]))
        """,
        """
        def build(group=None):
            model = fully_shard(
                Net(), mesh=DeviceMesh.from_group(group, "cuda") if group is not None else None
            )
            dist.barrier(group or dist.group.WORLD)


        build()
        build(dist.new_group([0]))
        """,
    ),
    "a group that may be None, whose weights are broadcast": (
        """
        def build(group=None):
            return FSDP(Net(), process_group=group, sync_module_states=True)


        build()
        build(dist.new_group([0]))
        """,
        """
        def build(group=None):
            model = Net()
            full_parameters = dict(model.named_parameters())
            mesh = DeviceMesh.from_group(group, "cuda") if group is not None else init_device_mesh(
                "cuda", (dist.get_world_size(),)
            )
            fully_shard(model, mesh=mesh)
            # All ranks of a group start from its first rank's weights and buffers.
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    full = full_parameters[name].to(mesh.device_type)
                    parameter.copy_(distribute_tensor(full, mesh, parameter.placements))
            for buffer in model.buffers():
                dist.broadcast(buffer, group=mesh.get_group(), group_src=0)
            del full_parameters
            return model


        build()
        build(dist.new_group([0]))
        """,
    ),
    "the group of a mesh that may be None": (
        """
        mesh = dist.device_mesh.init_device_mesh("cuda", (2,)) if os.environ.get("MESH") else None
        model = FSDP(Net(), device_mesh=mesh)
        dist.barrier(model.process_group)
        """,
        """
        mesh = dist.device_mesh.init_device_mesh("cuda", (2,)) if os.environ.get("MESH") else None
        model = fully_shard(Net(), mesh=mesh)
        dist.barrier(next(model.parameters()).device_mesh.get_group(-1))
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


MODEL = "model = FSDP(Net())\n"
BLOCKED = {
    "a group of a model whose parts are sharded in another way": (
        "net = Net()\nnet.blocks[0] = FSDP(net.blocks[0], "
        "sharding_strategy=ShardingStrategy.HYBRID_SHARD)\n"
        "model = FSDP(net, sharding_strategy=ShardingStrategy.NO_SHARD)\nprint(model.process_group)",
        "keep the process group",
    ),
    "a group of a model that ignores parameters": (
        "net = Net()\nmodel = FSDP(net, sharding_strategy=ShardingStrategy.HYBRID_SHARD, "
        "ignored_states=[net.blocks[0].linear.weight])\nprint(model.process_group)",
        "keep the process group",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_blocks(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body + "\n")
    reasons = [blocker.reason for blocker in found.blockers]
    assert any(re.search(reason, one) for one in reasons), reasons


def test_a_strategy_of_a_setting_is_noted(tmp_path: Path) -> None:
    setting = """
    from dataclasses import dataclass


    @dataclass
    class Settings:
        strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP


    model = FSDP(Net(), sharding_strategy=Settings().strategy)
    """
    variable = """
    strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP
    model = FSDP(Net(), sharding_strategy=strategy)
    """
    for body, noted in ((setting, True), (variable, False)):
        found, _ = plan(tmp_path, body)
        assert not found.blockers
        assert any("command line or from settings" in one.text for one in found.notes) is noted
