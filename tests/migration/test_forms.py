"""The text that each form of the constructor, of states and of the training loop is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.program import load
from fsdplint.rules.migration.plan import Plan, plans_of

HEAD = """\
import functools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import (
    BackwardPrefetch, CPUOffload, FullOptimStateDictConfig, FullStateDictConfig, MixedPrecision,
    FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType, ShardedStateDictConfig,
)
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy, _or_policy, always_wrap_policy, enable_wrap, lambda_auto_wrap_policy,
    size_based_auto_wrap_policy, transformer_auto_wrap_policy, wrap, CustomPolicy,
)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


class Masked(Block):
    def forward(self, x, mask):
        return x + self.linear(x) * mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
"""


def plan(tmp_path: Path, body: str, head: str = HEAD) -> tuple[Plan, str]:
    """The plan of a program, and its migrated text ("" where it is blocked)."""
    from fsdplint.editing.edits import apply
    from fsdplint.rule import Fix, Safety

    path = tmp_path / "train.py"
    path.write_text(head + textwrap.dedent(body), encoding="utf-8")
    program = load([path])
    (found,) = plans_of(program)
    if found.blockers:
        return found, ""
    whole = Fix("", Safety.SAFE, found.edits, found.imports, found.group, found.unused)
    applied = apply(program.sources, [whole])
    assert not applied.broken
    return found, applied.texts[str(path)]


def migrated(tmp_path: Path, body: str) -> str:
    """What becomes of the lines below HEAD."""
    found, text = plan(tmp_path, body)
    assert not found.blockers, [(b.reason, b.source.code(b.node)) for b in found.blockers]
    compile(text, "train.py", "exec")
    assert "FSDP(" not in text and "StateDictType" not in text
    return text[text.index('dist.init_process_group("nccl")\n') + 32 :]


FORMS = {
    "same name": (
        "model = FSDP(Net(), device_id=local_rank)",
        "model = fully_shard(Net())",
    ),
    "a norm that was of one rank": (
        """
        model = FSDP(Net())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print(f"norm {norm:.3f}")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
        """
        model = fully_shard(Net())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        print(f"norm {norm:.3f}")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """,
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
    "elementwise work on gradients, and a count": (
        """
        model = FSDP(Net())
        for p in model.parameters():
            p.grad.mul_(0.5)
        print(sum(p.numel() for p in model.parameters()))
        """,
        """
        model = fully_shard(Net())
        for p in model.parameters():
            p.grad.mul_(0.5)
        print(sum(p.numel() for p in model.parameters()))
        """,
    ),
    "a branch that is not taken, before the model is wrapped": (
        """
        def main(start=None):
            model = Net()
            if start:
                model.load_state_dict(torch.load(start))
            model = FSDP(model)
            return model


        main()
        """,
        """
        def main(start=None):
            model = Net()
            if start:
                model.load_state_dict(torch.load(start))
            fully_shard(model)
            return model


        main()
        """,
    ),
    "a branch that is not taken": (
        """
        def clip(model):
            model.clip_grad_norm_(2.0)


        def main(clipped=False, both=False):
            model = FSDP(Net())
            model.train()
            if clipped:
                model.clip_grad_norm_(1.0)
                if both:
                    clip(model)


        main()
        """,
        """
        def clip(model):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)


        def main(clipped=False, both=False):
            model = fully_shard(Net())
            model.train()
            if clipped:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if both:
                    clip(model)


        main()
        """,
    ),
    "the method forward": (
        """
        model = FSDP(Net())
        model.forward(torch.ones(2, 8))
        """,
        """
        model = fully_shard(Net())
        model(torch.ones(2, 8))
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
    "mixed precision of blocks with one input": (
        """
        precision = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision)
        """,
        """
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mp_policy=precision)
        fully_shard(model, mp_policy=precision)
        """,
    ),
    "mixed precision of blocks with further inputs": (
        """
        precision = MixedPrecision(torch.bfloat16, torch.float32)
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Masked}), mixed_precision=precision)
        """,
        """
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = Net()
        # Only the root casts its inputs.
        inner_policy = replace(precision, cast_forward_inputs=False)
        for module in reversed(list(model.modules())):
            if isinstance(module, Masked):
                fully_shard(module, mp_policy=inner_policy)
        fully_shard(model, mp_policy=precision)
        """,
    ),
    "policies of which one casts the inputs of blocks": (
        """
        full = MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)
        root = MixedPrecision(param_dtype=torch.float16)
        other = MixedPrecision(torch.float16, torch.float32, torch.float32)
        precision = full if os.environ.get("FULL") else root
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision)
        alone = FSDP(Net(), mixed_precision=full)
        """,
        """
        full = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        root = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16, cast_forward_inputs=False)
        other = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, cast_forward_inputs=False)
        precision = full if os.environ.get("FULL") else root
        model = Net()
        # The root casts its inputs in any case.
        root_policy = replace(precision, cast_forward_inputs=True)
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mp_policy=precision)
        fully_shard(model, mp_policy=root_policy)
        alone = fully_shard(Net(), mp_policy=replace(full, cast_forward_inputs=True))
        """,
    ),
    "mixed precision that may be None": (
        """
        precision = MixedPrecision(param_dtype=torch.float16) if os.environ.get("HALF") else None
        model = FSDP(Net(), mixed_precision=precision)
        """,
        """
        precision = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16) if os.environ.get("HALF") else None
        model = fully_shard(Net(), mp_policy=precision or MixedPrecisionPolicy())
        """,
    ),
    "buffers under mixed precision": (
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        precision = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float16)
        model = FSDP(Table(), mixed_precision=precision)
        """,
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        model = Table()
        fully_shard(model, mp_policy=precision)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(torch.float16)
        """,
    ),
    "buffers under mixed precision that may be None": (
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        precision = MixedPrecision(torch.bfloat16, torch.float32, torch.float32) if os.environ.get("HALF") else None
        model = Table()
        model = FSDP(model, mixed_precision=precision)
        """,
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if os.environ.get("HALF") else None
        model = Table()
        mp_policy = precision or MixedPrecisionPolicy()
        fully_shard(model, mp_policy=mp_policy)
        if mp_policy.param_dtype is not None:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(torch.float32)
        """,
    ),
    "buffers of a model that is held by another": (
        """
        from transformers import AutoModel


        class Held(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = AutoModel.from_pretrained("x")

            def forward(self, x):
                return self.base(x)


        precision = MixedPrecision(torch.bfloat16, torch.float32, torch.float32)
        model = Held()
        model = FSDP(model, mixed_precision=precision)
        """,
        """
        from transformers import AutoModel


        class Held(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = AutoModel.from_pretrained("x")

            def forward(self, x):
                return self.base(x)


        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = Held()
        fully_shard(model, mp_policy=precision)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.data.to(torch.float32)
        """,
    ),
    "rank 0's weights for all": (
        "model = FSDP(Net(), sync_module_states=True, device_id=torch.cuda.current_device())",
        """
        model = Net()
        full_state = model.state_dict()
        fully_shard(model)
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
    "weights on rank 0 only": (
        """
        low_memory = bool(os.environ.get("LOW_MEMORY"))
        model = Net()
        model = FSDP(
            model,
            sync_module_states=low_memory,
            param_init_fn=(lambda m: m.to_empty(device=torch.device("cuda"), recurse=False))
            if low_memory and local_rank != 0
            else None,
        )
        """,
        """
        low_memory = bool(os.environ.get("LOW_MEMORY"))
        model = Net()
        full_state = model.state_dict()
        fully_shard(model)
        if any(p.is_meta for p in model.parameters()):
            model.to_empty(device=torch.device("cuda"))
        # All ranks start from rank 0's weights and buffers.
        if low_memory:
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
    "an init function for the meta device": (
        """
        def materialize(module):
            module.to_empty(device=torch.cuda.current_device(), recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


        with torch.device("meta"):
            model = Net()
        on_meta = "META" in os.environ
        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            param_init_fn=materialize if on_meta else None,
        )
        """,
        """
        def materialize(module):
            module.to_empty(device=torch.cuda.current_device(), recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


        with torch.device("meta"):
            model = Net()
        on_meta = "META" in os.environ
        def initialize(module, param_init_fn):
            \"\"\"Give what is on the meta device memory and values, just before it is sharded.\"\"\"
            parts = [module]
            for part in parts:
                for child in part.children():
                    if child not in parts and not isinstance(child, FSDPModule):
                        parts.append(child)
            if param_init_fn is not None and any(
                tensor.is_meta
                for part in parts
                for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))
            ):
                for part in parts:
                    param_init_fn(part)


        def initialize_and_shard(module, test, param_init_fn, **kwargs):
            \"\"\"Initialize and shard the submodules for which test(module) holds, children first.\"\"\"
            for child in module.children():
                if isinstance(child, FSDPModule):
                    continue
                initialize_and_shard(child, test, param_init_fn, **kwargs)
                if test(child):
                    initialize(child, param_init_fn)
                    fully_shard(child, **kwargs)


        fsdp_param_init_fn = materialize if on_meta else None
        initialize_and_shard(
            model, lambda submodule: isinstance(submodule, Block), fsdp_param_init_fn
        )
        initialize(model, fsdp_param_init_fn)
        fully_shard(model)
        """,
    ),
    "frozen parameters that are ignored": (
        """
        net = Net()
        frozen = [p for p in net.parameters() if not p.requires_grad]
        model = FSDP(
            net,
            process_group=dist.new_group([0, 1]),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_states=frozen,
            sync_module_states=True,
            device_id=local_rank,
        )
        """,
        """
        net = Net()
        frozen = [p for p in net.parameters() if not p.requires_grad]
        full_parameters = dict(net.named_parameters())
        for parameter in frozen:
            parameter.data = parameter.data.to(local_rank)
        mesh = DeviceMesh.from_group(dist.new_group([0, 1]), "cuda")
        fsdp_kwargs = {
            "mesh": mesh,
            "ignored_params": set(frozen),
        }
        for module in reversed(list(net.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        model = fully_shard(net, **fsdp_kwargs)
        # All ranks of a group start from its first rank's weights and buffers.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not isinstance(parameter, DTensor):
                    continue
                full = full_parameters[name].to(mesh.device_type)
                parameter.copy_(distribute_tensor(full, mesh, parameter.placements))
        for buffer in model.buffers():
            dist.broadcast(buffer, group=mesh.get_group(), group_src=0)
        del full_parameters
        """,
    ),
    "ignored modules that nobody names": (
        """
        def build(model, ignored=[]):
            return FSDP(model, ignored_modules=ignored)


        model = build(Net())
        """,
        """
        def build(model, ignored=[]):
            return fully_shard(
                model, ignored_params={p for module in ignored for p in module.parameters()}
            )


        model = build(Net())
        """,
    ),
    "a config that is never made": (
        """
        precision = None
        model = FSDP(Net(), mixed_precision=precision)
        """,
        """
        model = fully_shard(Net())
        """,
    ),
    "a compiled model": (
        """
        model = FSDP(Net())
        model = torch.compile(model)
        """,
        """
        model = fully_shard(Net())
        model = torch.compile(model)
        """,
    ),
    "a block without effect": (
        """
        model = FSDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
        """
        model = fully_shard(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.save(optimizer.state_dict(), f"{dist.get_rank()}.pt")
        """,
    ),
    "a policy with a lambda": (
        """
        policy = functools.partial(
            lambda_auto_wrap_policy,
            lambda_fn=lambda m: isinstance(m, Block) and m.training,  # no frozen ones
        )
        model = FSDP(
            Net(),
            auto_wrap_policy=policy,
            #sync_module_states=True,
        )
        """,
        """
        model = Net()
        # no frozen ones
        for module in reversed(list(model.modules())[1:]):
            if isinstance(module, Block) and module.training:
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "one policy or another": (
        """
        first = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
        second = ModuleWrapPolicy({Masked})
        model = FSDP(Net(), auto_wrap_policy=functools.partial(_or_policy, policies=[first, second]))
        """,
        """
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block) or isinstance(module, Masked):
                fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy that says yes or no": (
        """
        def is_block(module):
            return isinstance(module, Block) and module.training


        model = FSDP(Net(), auto_wrap_policy=CustomPolicy(is_block))
        """,
        """
        def is_block(module):
            return isinstance(module, Block) and module.training


        model = Net()
        for submodule in reversed(list(model.modules())[1:]):
            if is_block(submodule):
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "a policy for two models": (
        """
        policy = ModuleWrapPolicy({Block})
        model = FSDP(Net(), auto_wrap_policy=policy)
        average = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        policy = lambda module: isinstance(module, Block)
        model = Net()
        for module in reversed(list(model.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(model)
        average = Net()
        for module in reversed(list(average.modules())):
            if policy(module):
                fully_shard(module)
        fully_shard(average)
        """,
    ),
    "a policy with the class of a part, chosen": (
        """
        net = Net()
        if os.environ.get("PARTS"):
            policy = ModuleWrapPolicy([type(net.blocks[0].linear)])
        else:
            policy = ModuleWrapPolicy([type(net.blocks[0])])
        model = FSDP(net, auto_wrap_policy=policy)
        """,
        """
        net = Net()
        if os.environ.get("PARTS"):
            layer_class = type(net.blocks[0].linear)
            policy = lambda module: isinstance(module, layer_class)
        else:
            layer_class = type(net.blocks[0])
            policy = lambda module: isinstance(module, layer_class)
        for module in reversed(list(net.modules())):
            if policy(module):
                fully_shard(module)
        model = fully_shard(net)
        """,
    ),
    "a list of policies that grows": (
        """
        def policies_for(blocks):
            def is_linear(module):
                return isinstance(module, nn.Linear)

            linear = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_linear)
            layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            if blocks:
                return layers
            policies = [linear]
            if os.environ.get("LAYERS"):
                policies.append(layers)
            return functools.partial(_or_policy, policies=policies)


        model = FSDP(Net(), auto_wrap_policy=policies_for("BLOCKS" in os.environ))
        """,
        """
        def policies_for(blocks):
            def is_linear(module):
                return isinstance(module, nn.Linear)

            linear = is_linear
            layers = lambda module: isinstance(module, Block)
            if blocks:
                return layers
            policies = [linear]
            if os.environ.get("LAYERS"):
                policies.append(layers)
            return lambda module: any(policy(module) for policy in policies)


        model = Net()
        should_shard = policies_for("BLOCKS" in os.environ)
        for submodule in reversed(list(model.modules())[1:]):
            if should_shard(submodule):
                fully_shard(submodule)
        fully_shard(model)
        """,
    ),
    "policies of which one is not used": (
        """
        def linear_policy():
            return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})


        def block_policy():
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
            return policy


        def policies():
            blocks = None
            blocks = block_policy()
            return linear_policy(), blocks


        def main(sharded=False):
            model = Net()
            linear, blocks = policies()
            if sharded:
                other, chosen = policies()
                model = FSDP(model, auto_wrap_policy=chosen)
            return FSDP(model, auto_wrap_policy=blocks)


        main()
        """,
        """
        def linear_policy():
            return lambda module: isinstance(module, nn.Linear)


        def block_policy():
            policy = lambda module: isinstance(module, Block)
            return policy


        def policies():
            blocks = None
            blocks = block_policy()
            return linear_policy(), blocks


        def main(sharded=False):
            model = Net()
            linear, blocks = policies()
            if sharded:
                other, chosen = policies()
                if chosen is not None:
                    for module in reversed(list(model.modules())):
                        if chosen(module):
                            fully_shard(module)
                fully_shard(model)
            for module in reversed(list(model.modules())):
                if blocks(module):
                    fully_shard(module)
            return fully_shard(model)


        main()
        """,
    ),
    "a policy of a library": (
        """
        from library.policies import make_policy
        policy = make_policy()
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        from library.policies import make_policy
        policy = make_policy()
        def shard_by_policy(model, policy, **kwargs):
            \"\"\"Shard the submodules that a policy(module, recurse, nonwrapped_numel) picks,
            children first.
            \"\"\"

            def visit(module):
                numel = sum(p.numel() for p in module.parameters())
                if not policy(module=module, recurse=True, nonwrapped_numel=numel):
                    return 0
                taken = sum(visit(child) for child in module.children())
                if module is model:
                    return taken
                if not policy(module=module, recurse=False, nonwrapped_numel=numel - taken):
                    return taken
                fully_shard(module, **kwargs)
                return numel

            visit(model)


        model = Net()
        if policy is not None:
            shard_by_policy(model, policy)
        fully_shard(model)
        """,
    ),
    "a policy that is not taken here": (
        """
        def linear_policy():
            return functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: hasattr(m, "bias"))


        def main(peft=False):
            if peft:
                policy = linear_policy()
            return FSDP(Net(), auto_wrap_policy=policy if peft else ModuleWrapPolicy({Block}))


        main()
        """,
        """
        def linear_policy():
            return lambda module: hasattr(module, "bias")


        def main(peft=False):
            if peft:
                policy = linear_policy()
            model = Net()
            should_shard = policy if peft else lambda module: isinstance(module, Block)
            for module in reversed(list(model.modules())[1:]):
                if should_shard(module):
                    fully_shard(module)
            return fully_shard(model)


        main()
        """,
    ),
    "a policy that is chosen": (
        """
        if os.environ.get("BLOCKS"):
            policy = ModuleWrapPolicy({Block})
        else:
            policy = None
        model = FSDP(Net(), auto_wrap_policy=policy)
        """,
        """
        if os.environ.get("BLOCKS"):
            policy = lambda module: isinstance(module, Block)
        else:
            policy = None
        model = Net()
        if policy is not None:
            for module in reversed(list(model.modules())):
                if policy(module):
                    fully_shard(module)
        fully_shard(model)
        """,
    ),
    "a policy only under a condition": (
        """
        wrap_blocks = bool(os.environ.get("BLOCKS"))
        model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}) if wrap_blocks else None)
        """,
        """
        wrap_blocks = bool(os.environ.get("BLOCKS"))
        model = Net()
        if wrap_blocks:
            for module in reversed(list(model.modules())):
                if isinstance(module, Block):
                    fully_shard(module)
        fully_shard(model)
        """,
    ),
    "nested by hand": (
        """
        model = Net()
        model.blocks = nn.ModuleList([FSDP(block) for block in model.blocks])
        model = FSDP(model)
        """,
        """
        model = Net()
        model.blocks = nn.ModuleList([fully_shard(block) for block in model.blocks])
        fully_shard(model)
        """,
    ),
    "a scaler": (
        """
        model = FSDP(Net())
        scaler = ShardedGradScaler(enabled=True)
        """,
        """
        model = fully_shard(Net())
        scaler = torch.amp.GradScaler("cuda", enabled=True)
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
    "the module inside": (
        """
        model = FSDP(Net())
        print(model.module.blocks, isinstance(model, (FSDP, nn.Module)))
        """,
        """
        model = fully_shard(Net())
        print(model.blocks, isinstance(model, (FSDPModule, nn.Module)))
        """,
    ),
}


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


def test_no_device_at_all_blocks(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, "model = FSDP(Net())\n", NO_DEVICE)
    assert "which device is this rank's" in found.blockers[0].reason


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


BLOCKED = {
    "an init function, and weights of rank 0": (
        "model = FSDP(Net(), param_init_fn=lambda m: m.reset_parameters(), sync_module_states=True)",
        "param_init_fn",
    ),
    "ignored modules": (
        "net = Net()\nmodel = FSDP(net, ignored_modules=[net.blocks[0]])",
        "ignored_modules",
    ),
    "quantized weights": (
        "from bitsandbytes.nn import Linear4bit\n"
        "net = Net()\nnet.extra = Linear4bit(8, 8)\nmodel = FSDP(net)",
        "attributes that FSDP2 does not keep",
    ),
    "arguments out of sight": (
        "def build(**kwargs):\n    return FSDP(Net(), **kwargs)\n\n\nmodel = build()",
        r"come from cannot be seen",
    ),
    "a state taken elsewhere": (
        "from library import saver\n\n\ndef save(model):\n    saver.write(model)\n\n\n"
        "model = FSDP(Net())\nwith FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
        "    save(model)",
        "code that this block calls",
    ),
    "buffers of one dtype or another": (
        "class Table(Net):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('table', torch.ones(3))\n\n\n"
        "if os.environ.get('FAST'):\n    precision = MixedPrecision(torch.bfloat16, buffer_dtype=torch.float32)\n"
        "else:\n    precision = MixedPrecision(torch.bfloat16, buffer_dtype=torch.bfloat16)\n"
        "model = FSDP(Table(), mixed_precision=precision)",
        "which `buffer_dtype`",
    ),
    "low precision gradients": (
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16, keep_low_precision_grads=True))",
        "keep_low_precision_grads",
    ),
    "whole parameters that are written": (
        "model = FSDP(Net())\nwith FSDP.summon_full_params(model):\n"
        "    nn.init.normal_(model.blocks[0].linear.weight)",
        "written inside of `summon_full_params`",
    ),
    "a subclass": ("class Mine(FSDP):\n    pass\n\n\nmodel = Mine(Net())\nFSDP(Net())", "subclass"),
    "the class as an argument": (
        "wrapped = [cls(Net()) for cls in map(type, [FSDP(Net())])]\nmodel = dict(cls=FSDP)",
        "passed as an argument",
    ),
    "an enclosing context": (
        "with enable_wrap(wrapper_cls=FSDP):\n    pass\nmodel = wrap(Net())\nFSDP(Net())",
        "which `enable_wrap` block",
    ),
    "the optimizer first": (
        "net = Net()\noptimizer = torch.optim.SGD(net.parameters(), lr=1)\n"
        "model = FSDP(net, use_orig_params=True)",
        "built before the model is wrapped",
    ),
    "a norm of each rank's part": (
        "def norm(model):\n"
        "    total = sum(p.grad.norm() for p in model.parameters())\n"
        "    dist.all_reduce(total)\n    return total\n\n\n"
        "model = FSDP(Net())\nprint(norm(model))",
        "part of the gradients",
    ),
    "a norm in a loop of the file": (
        "model = FSDP(Net())\ntotal = torch.zeros(1)\n"
        "for p in model.parameters():\n    total += p.grad.norm() ** 2\ndist.all_reduce(total)",
        r"`p.grad.norm\(\)` is about one rank's part",
    ),
    "gradients that are summed by hand": (
        "model = FSDP(Net())\nfor name, p in model.named_parameters():\n    dist.all_reduce(p.grad)",
        r"`dist.all_reduce\(p.grad\)` is about one rank's part",
    ),
    "a parameter as an array": (
        "model = FSDP(nn.Linear(8, 8))\nprint(model.bias.detach().cpu().numpy())",
        "numpy",
    ),
    "a library's function for FSDP": (
        "from library.parallel import prepare_for_fsdp\nmodel = FSDP(Net())\nprepare_for_fsdp(model)",
        "`prepare_for_fsdp` gets the wrapped model",
    ),
    "the state of an optimizer in a branch that is not taken": (
        "def save(model, optimizer):\n"
        "    torch.save((model.state_dict(), optimizer.state_dict()), 'x.pt')\n\n\n"
        "def main(keep=False):\n    model = FSDP(Net())\n    model.train()\n"
        "    optimizer = torch.optim.AdamW(model.parameters())\n    if keep:\n"
        "        save(model, optimizer)\n\n\nmain()",
        "does not reach",
    ),
    "a model that a branch replaces": (
        "def main(data=False):\n    model = FSDP(Net())\n    if data:\n"
        "        model = nn.parallel.DistributedDataParallel(Net())\n"
        "        with model.no_sync():\n            pass\n\n\nmain()",
        "does not reach",
    ),
    "the state of the inner module": (
        'model = FSDP(Net())\ntorch.save(model.module.state_dict(), "x.pt")',
        "rank's flat part",
    ),
    "a copy": (
        "import copy\nmodel = FSDP(Net())\nema = copy.deepcopy(model)",
        "copied",
    ),
    "a part called by a method": (
        "class Outer(Net):\n    def encode(self, x):\n        return self.blocks(x)\n\n\n"
        "model = FSDP(Outer())\nmodel.encode(torch.ones(2, 8))",
        "outside of its forward",
    ),
    "DDP in other configurations": (
        "net = Net()\nif os.environ.get('FSDP'):\n    model = FSDP(net)\nelse:\n"
        "    model = nn.parallel.DistributedDataParallel(net)\n"
        "with model.no_sync():\n    model(torch.ones(2, 8)).sum().backward()",
        "DDP's in other",
    ),
    "another method": (
        "model = FSDP(Net())\nmodel.generate(torch.ones(2, 8))",
        "generate",
    ),
    "a config for another library": (
        "import accelerate\nFSDP(Net())\n"
        "plugin = accelerate.FullyShardedDataParallelPlugin(mixed_precision_policy=MixedPrecision())",
        "handed to",
    ),
    "a policy with parameters of its own": (
        "def choose(module):\n    if isinstance(module, Block):\n"
        "        return {'sharding_strategy': ShardingStrategy.SHARD_GRAD_OP}\n    return False\n\n\n"
        "model = FSDP(Net(), auto_wrap_policy=CustomPolicy(choose))",
        "only says yes or no",
    ),
}


@pytest.mark.parametrize(("body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_has_no_rewrite_blocks(body: str, reason: str, tmp_path: Path) -> None:
    import re

    found, _ = plan(tmp_path, body + "\n")
    assert found.blockers
    assert any(re.search(reason, blocker.reason) for blocker in found.blockers)
    assert not found.edits
