"""The text that mixed precision is migrated to."""

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
            mp_policy=MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, cast_forward_inputs=False
            ),
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
    "comments behind arguments": (
        """
        half = MixedPrecision(
            param_dtype=torch.bfloat16,  # of the computation
            cast_forward_inputs=True,
        )
        whole = MixedPrecision(
            param_dtype=torch.float32,
            reduce_dtype=torch.float32,  # of the gradients
            buffer_dtype=torch.float32,
        )
        other = MixedPrecision(
            param_dtype=torch.float16  # of the computation
        )
        model = FSDP(
            Net(),
            mixed_precision=half if local_rank else whole if local_rank == 1 else other,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
        )
        """,
        """
        half = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,  # of the computation
            reduce_dtype=torch.bfloat16,
        )
        whole = MixedPrecisionPolicy(
            param_dtype=torch.float32,
            reduce_dtype=torch.float32,  # of the gradients
            cast_forward_inputs=False,
        )
        other = MixedPrecisionPolicy(
            param_dtype=torch.float16,  # of the computation
            reduce_dtype=torch.float16,
            cast_forward_inputs=False
        )
        model = Net()
        mp_policy = half if local_rank else whole if local_rank == 1 else other
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


SET = {
    "a variable": """
        half = MixedPrecision(param_dtype=torch.bfloat16)
        half.reduce_dtype = torch.float32
        model = FSDP(Net(), mixed_precision=half)
    """,
    "an attribute": """
        class Config:
            def __init__(self):
                self.precision = MixedPrecision(param_dtype=torch.bfloat16)


        config = Config()
        if os.environ["HALF"]:
            config.precision.param_dtype = torch.float16
        model = FSDP(Net(), mixed_precision=config.precision)
    """,
}


@pytest.mark.parametrize("body", list(SET.values()), ids=list(SET))
def test_a_field_that_is_set_blocks(body: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, body)
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-precision-field-set"]
