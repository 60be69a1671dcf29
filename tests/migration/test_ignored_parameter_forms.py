"""The text that ignored modules and parameters are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
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
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
