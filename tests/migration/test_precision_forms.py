"""The text that precision, buffers, first weights and ignored parameters are migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

FORMS = {
    "no module casts its inputs": (
        """
        half = MixedPrecision(param_dtype=torch.bfloat16, cast_root_forward_inputs=False)
        policy = ModuleWrapPolicy({Block})
        model = FSDP(Net(), auto_wrap_policy=policy, mixed_precision=half)
        """,
        """
        half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, cast_forward_inputs=False)
        model = Net()
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mp_policy=half)
        fully_shard(model, mp_policy=half)
        """,
    ),
    "no module casts its inputs, as both options say": (
        """
        model = FSDP(
            Net(),
            mixed_precision=MixedPrecision(
                param_dtype=torch.bfloat16,
                cast_forward_inputs=False,
                cast_root_forward_inputs=False,
            ),
        )
        """,
        """
        model = fully_shard(
            Net(),
            mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, cast_forward_inputs=False),
        )
        """,
    ),
    "each module casts its inputs, and so does the root": (
        """
        half = MixedPrecision(
            param_dtype=torch.bfloat16, cast_forward_inputs=True, cast_root_forward_inputs=False
        )
        model = FSDP(Net(), mixed_precision=half)
        """,
        """
        half = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.bfloat16
        )
        model = fully_shard(Net(), mp_policy=half)
        """,
    ),
    "own casts of inputs, of which only one is said": (
        """
        half = MixedPrecision(
            param_dtype=torch.bfloat16,
            cast_forward_inputs=True,
        )
        whole = MixedPrecision(
            param_dtype=torch.float32,
            # how gradients are reduced
            reduce_dtype=torch.float32,
            buffer_dtype=torch.float32,
        )


        def pick(low):
            return half if low else whole


        model = FSDP(
            Net(), mixed_precision=pick(local_rank), auto_wrap_policy=ModuleWrapPolicy({Block})
        )
        """,
        """
        half = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            reduce_dtype=torch.bfloat16,
        )
        whole = MixedPrecisionPolicy(
            param_dtype=torch.float32,
            # how gradients are reduced
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,
        )


        def pick(low):
            return half if low else whole


        model = Net()
        mp_policy = pick(local_rank)
        # The root casts its inputs in any case.
        root_policy = replace(mp_policy, cast_forward_inputs=True)
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, mp_policy=mp_policy)
        fully_shard(model, mp_policy=root_policy)
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
    "a config that is never made": (
        """
        precision = None
        model = FSDP(Net(), mixed_precision=precision)
        """,
        """
        model = fully_shard(Net())
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


PICKED = {
    "a policy by size may pick blocks that get a mask": (
        """
        class Masks(Net):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Masked(), Masked()])


        net = Masks()
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=64)
        half = MixedPrecision(param_dtype=torch.bfloat16)
        model = FSDP(net, auto_wrap_policy=policy, mixed_precision=half)
        """,
        "shard_large_modules(net, 64, mp_policy=inner_policy)",
    ),
    "a policy by size picks blocks that get one tensor": (
        """
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=64)
        half = MixedPrecision(param_dtype=torch.bfloat16)
        model = FSDP(Net(), auto_wrap_policy=policy, mixed_precision=half)
        """,
        "shard_large_modules(model, 64, mp_policy=half)",
    ),
    "a class derived from the policy's gets a mask": (
        """
        class Masks(Net):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block(), Masked()])


        model = FSDP(
            Masks(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
        )
        """,
        "fully_shard(module, mp_policy=inner_policy)",
    ),
    "layers of torch by a policy of any kind": (
        """
        model = FSDP(
            nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 8)), auto_wrap_policy=always_wrap_policy,
            mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
        )
        """,
        "fully_shard(module, mp_policy=inner_policy)",
    ),
}


@pytest.mark.parametrize(("body", "line"), list(PICKED.values()), ids=list(PICKED))
def test_only_modules_with_one_input_cast_it(body: str, line: str, tmp_path: Path) -> None:
    assert line in migrated(tmp_path, body)


def test_what_needs_its_parentheses_keeps_them(tmp_path: Path) -> None:
    body = """
    BF16 = MixedPrecision(param_dtype=torch.bfloat16)

    def train(net):
        FSDP(net, mixed_precision=(yield), use_orig_params=True)

    if __name__ == "__main__":
        for _ in train(Net()):
            pass
    """
    assert "mp_policy=(yield) or MixedPrecisionPolicy()" in migrated(tmp_path, body)


BUFFERS = """
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(8))


model = FSDP(Scaled(), mixed_precision=MixedPrecision(buffer_dtype=torch.bfloat16))
SAVED
"""


@pytest.mark.parametrize(
    ("saved", "noted"), [("torch.save(model.state_dict(), 'x.pt')", True), ("model.eval()", False)]
)
def test_buffers_that_are_saved_in_low_precision_are_noted(
    saved: str, noted: bool, tmp_path: Path
) -> None:
    found, _ = plan(tmp_path, BUFFERS.replace("SAVED", saved))
    assert not found.blockers
    assert any("saved in the low precision" in note.text for note in found.notes) is noted


def test_comments_in_a_policy_that_nothing_reads_go_with_it(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        def main():
            unused = MixedPrecision(
                # Gradient communication precision.
                reduce_dtype=torch.float16,
            )
            return FSDP(Net())


        main()
        """,
    )
    assert "# Gradient" not in text
