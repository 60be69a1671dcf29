"""The text that ignored modules and parameters are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
    "modules that are ignored under a condition": (
        """
        net = Net()
        net.blocks[0].requires_grad_(False)
        ignored = None
        if os.environ.get("KEEP"):
            ignored = [net.blocks[0]]
        model = FSDP(net, ignored_modules=ignored)
        """,
        """
        net = Net()
        net.blocks[0].requires_grad_(False)
        ignored = None
        if os.environ.get("KEEP"):
            ignored = [net.blocks[0]]
        model = fully_shard(
            net, ignored_params={p for module in ignored or () for p in module.parameters()}
        )
        """,
    ),
    "parameters or None": (
        """
        net = Net()
        net.blocks[0].requires_grad_(False)
        ignored = list(net.blocks[0].parameters()) if os.environ.get("KEEP") else None
        model = FSDP(net, ignored_states=ignored)
        """,
        """
        net = Net()
        net.blocks[0].requires_grad_(False)
        ignored = list(net.blocks[0].parameters()) if os.environ.get("KEEP") else None
        model = fully_shard(net, ignored_params=set(ignored or ()))
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
    "ignored modules that the program trains": (
        """
        def reduce_gradients(parameters):
            for p in parameters:
                dist.all_reduce(p.grad)


        net = Net()
        model = FSDP(net, ignored_modules=[net.blocks[0]])
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 8)).sum().backward()
        reduce_gradients(list(net.blocks[0].parameters()))
        optimizer.step()
        """,
        """
        def reduce_gradients(parameters):
            for p in parameters:
                dist.all_reduce(p.grad)


        net = Net()
        model = fully_shard(net, ignored_params=set(net.blocks[0].parameters()))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        model(torch.ones(2, 8)).sum().backward()
        reduce_gradients(list(net.blocks[0].parameters()))
        optimizer.step()
        """,
    ),
    "frozen parameters by the name in torch 2.0": (
        """
        net = Net()
        model = FSDP(
            net,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_parameters=[p for p in net.parameters() if not p.requires_grad],
        )
        """,
        """
        net = Net()
        ignored_params = set([p for p in net.parameters() if not p.requires_grad])
        for module in reversed(list(net.modules())):
            if isinstance(module, Block):
                fully_shard(module, ignored_params=ignored_params)
        model = fully_shard(net, ignored_params=ignored_params)
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
    "ignored modules that are None": (
        """
        def build(model, ignored=None):
            return FSDP(model, ignored_modules=ignored)


        model = build(Net())
        """,
        """
        def build(model, ignored=None):
            return fully_shard(
                model, ignored_params={p for module in ignored or () for p in module.parameters()}
            )


        model = build(Net())
        """,
    ),
    "ignored modules that a helper gets": (
        """
        def build(model, ignored=None):
            return FSDP(model, ignored_modules=ignored)


        net = Net()
        net.blocks[0].requires_grad_(False)
        model = build(net, ignored=[net.blocks[0]])
        other = build(Net())
        """,
        """
        def build(model, ignored=None):
            return fully_shard(
                model, ignored_params={p for module in ignored or () for p in module.parameters()}
            )


        net = Net()
        net.blocks[0].requires_grad_(False)
        model = build(net, ignored=[net.blocks[0]])
        other = build(Net())
        """,
    ),
    "a list of no ignored modules": (
        """
        model = Net()
        ignored = []
        model = FSDP(model, ignored_modules=ignored)
        """,
        """
        model = Net()
        fully_shard(model)
        """,
    ),
    "an ignored module that the policy picks, under mixed precision": (
        """
        model = Net()
        model.blocks[0].requires_grad_(False)
        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_modules=[model.blocks[0]],
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        )
        """,
        """
        model = Net()
        model.blocks[0].requires_grad_(False)
        fsdp_kwargs = {
            "ignored_params": set(model.blocks[0].parameters()),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        }
        not_sharded = set(model.blocks[0].modules())
        for module in reversed(list(model.modules())):
            if module not in not_sharded and isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "ignored parameters of a module that the policy picks, under mixed precision": (
        """
        model = Net()
        model.blocks[0].requires_grad_(False)
        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_states=list(model.blocks[0].parameters()),
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        )
        """,
        """
        model = Net()
        model.blocks[0].requires_grad_(False)
        fsdp_kwargs = {
            "ignored_params": set(model.blocks[0].parameters()),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        }
        ignored_parameters = set(model.blocks[0].parameters())
        for module in reversed(list(model.modules())):
            if not ignored_parameters.issuperset(module.parameters()) and isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "an ignored module that the policy leaves out": (
        """
        class Both(Net):
            def __init__(self):
                super().__init__()
                self.side = nn.Linear(8, 8)


        model = Both()
        model.side.requires_grad_(False)
        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_modules=[model.side],
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        )
        """,
        """
        class Both(Net):
            def __init__(self):
                super().__init__()
                self.side = nn.Linear(8, 8)


        model = Both()
        model.side.requires_grad_(False)
        fsdp_kwargs = {
            "ignored_params": set(model.side.parameters()),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        }
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
    "ignored parameters of a module that the policy leaves out": (
        """
        class Both(Net):
            def __init__(self):
                super().__init__()
                self.side = nn.Linear(8, 8)


        model = Both()
        model.side.requires_grad_(False)
        model = FSDP(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            ignored_states=list(model.side.parameters()),
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        )
        """,
        """
        class Both(Net):
            def __init__(self):
                super().__init__()
                self.side = nn.Linear(8, 8)


        model = Both()
        model.side.requires_grad_(False)
        fsdp_kwargs = {
            "ignored_params": set(model.side.parameters()),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        }
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, **fsdp_kwargs)
        fully_shard(model, **fsdp_kwargs)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
