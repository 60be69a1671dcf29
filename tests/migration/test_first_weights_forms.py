"""The text that the first weights of a model are migrated to: rank 0's, and those of the meta device."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

FORMS = {
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
    "weights on rank 0 only, chosen in branches": (
        """
        def build(model):
            if local_rank == 0:
                init = None
            else:
                init = lambda m: m.to_empty(device=torch.cuda.current_device(), recurse=False)

            return FSDP(model, param_init_fn=init, sync_module_states=True)


        model = build(Net())
        """,
        """
        def build(model):
            full_state = model.state_dict()
            fully_shard(model)
            if any(p.is_meta for p in model.parameters()):
                model.to_empty(device=torch.cuda.current_device())
            # All ranks start from rank 0's weights and buffers.
            set_model_state_dict(
                model,
                full_state,
                options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
            )
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)
            del full_state
            return model


        model = build(Net())
        """,
    ),
    "weights on no rank, which a state replaces": (
        """
        with torch.device("meta"):
            model = Net()
        model = FSDP(
            model,
            sync_module_states=True,
            param_init_fn=lambda m: m.to_empty(device=torch.device("cuda"), recurse=False),
        )
        model.load_state_dict(torch.load("weights.pt"))
        """,
        """
        with torch.device("meta"):
            model = Net()
        fully_shard(model)
        model.to_empty(device=torch.device("cuda"))
        set_model_state_dict(
            model, torch.load("weights.pt"), options=StateDictOptions(full_state_dict=True)
        )
        """,
    ),
    "an init function for the meta device, and rank 0's values": (
        """
        def materialize(module):
            module.to_empty(device=torch.cuda.current_device(), recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


        with torch.device("meta"):
            model = Net()
        model = FSDP(model, param_init_fn=materialize, sync_module_states=True)
        print(len(FSDP.fsdp_modules(model, root_only=True)))
        """,
        """
        def materialize(module):
            module.to_empty(device=torch.cuda.current_device(), recurse=False)
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


        with torch.device("meta"):
            model = Net()


        def from_rank0(param_init_fn):
            \"\"\"A function that initializes a module, and gives all ranks the values of rank 0.\"\"\"

            def initialize(module):
                param_init_fn(module)
                for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                    dist.broadcast(tensor.detach(), src=0)

            return initialize


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


        fsdp_param_init_fn = from_rank0(materialize)
        initialize(model, fsdp_param_init_fn)
        fully_shard(model)
        print(len([model]))
        """,
    ),
    "weights on rank 0 only, a function in one branch that also casts": (
        """
        def build(model, dtype):
            if dist.get_rank() == 0:
                model.load_state_dict(torch.load("weights.pt"), assign=True)
                initialize = None
            else:

                def initialize(module):
                    module.to_empty(device=torch.cuda.current_device(), recurse=False)
                    module.to(dtype)

                assert all(p.is_meta for p in model.parameters())
            return FSDP(model, param_init_fn=initialize, sync_module_states=True)


        with torch.device("meta"):
            net = Net()
        model = build(net, torch.bfloat16)
        """,
        """
        def build(model, dtype):
            if dist.get_rank() == 0:
                model.load_state_dict(torch.load("weights.pt"), assign=True)
            else:

                assert all(p.is_meta for p in model.parameters())
            if any(p.is_meta for p in model.parameters()):
                model.to(dtype)
            full_state = model.state_dict()
            fully_shard(model)
            if any(p.is_meta for p in model.parameters()):
                model.to_empty(device=torch.cuda.current_device())
            # All ranks start from rank 0's weights and buffers.
            set_model_state_dict(
                model,
                full_state,
                options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
            )
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)
            del full_state
            return model


        with torch.device("meta"):
            net = Net()
        model = build(net, torch.bfloat16)
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
    "a library's model on the meta device, without an init function": (
        """
        from accelerate import init_empty_weights
        from library import Large


        def initialize(model):
            return model


        with init_empty_weights():
            model = Large()
        model = FSDP(model, device_id=torch.cuda.current_device())
        """,
        """
        from accelerate import init_empty_weights
        from library import Large


        def initialize(model):
            return model


        with init_empty_weights():
            model = Large()


        @torch.no_grad()
        def reset_module(module):
            \"\"\"Give what a module itself holds memory, and the values of its reset_parameters.\"\"\"
            if [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                module.to_empty(device=torch.cuda.current_device(), recurse=False)
                module.reset_parameters()


        def initialize_module(module, param_init_fn):
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


        initialize_module(model, reset_module)
        fully_shard(model)
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()
