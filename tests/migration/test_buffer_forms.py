"""The text that the precision of buffers is migrated to."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

FORMS = {
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
    "buffers of several policies": (
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32, buffer_dtype=torch.float16)
        mixed = MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)


        def choose():
            precision = None
            if os.environ.get("MIXED"):
                precision = mixed
            elif os.environ.get("HALF"):
                precision = half
            return precision


        model = FSDP(Table(), mixed_precision=choose())
        """,
        """
        class Table(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x):
                return x * self.table.sum()


        half = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
        mixed = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)


        def choose():
            precision = None
            if os.environ.get("MIXED"):
                precision = mixed
            elif os.environ.get("HALF"):
                precision = half
            return precision


        model = Table()
        mp_policy = choose() or MixedPrecisionPolicy()
        fully_shard(model, mp_policy=mp_policy)
        if mp_policy.param_dtype is not None:
            dtype_of_buffers = torch.bfloat16 if mp_policy.param_dtype == torch.float32 else mp_policy.param_dtype
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.data.to(dtype_of_buffers)
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
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


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


def test_buffers_that_stay_in_float32_are_not_noted(tmp_path: Path) -> None:
    body = BUFFERS.replace("torch.bfloat16", "torch.float32")
    found, _ = plan(tmp_path, body.replace("SAVED", "torch.save(model.state_dict(), 'x.pt')"))
    assert not found.blockers
    assert not any("saved in the low precision" in note.text for note in found.notes)


CHOSEN = """
TABLE = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(8))


def precision(name):
    if name == "none":
        return None
    return MixedPrecision(param_dtype=DTYPE, buffer_dtype=torch.float32)


model = FSDP(Scaled(), mixed_precision=precision(os.environ.get("PRECISION")))
"""


@pytest.mark.parametrize(
    "dtype",
    [
        "TABLE[name]",
        "TABLE.get(name, torch.float16)",
        "torch.bfloat16 if name == 'bf16' else torch.float32",
        "getattr(torch, name)",
    ],
)
def test_a_policy_that_may_be_none_and_has_some_type(dtype: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, CHOSEN.replace("DTYPE", dtype))
    assert text.endswith(
        "if mp_policy.param_dtype is not None:\n"
        "    for buffer in model.buffers():\n"
        "        if buffer.is_floating_point():\n"
        "            buffer.data = buffer.data.to(torch.float32)\n"
    )


@pytest.mark.parametrize("dtype", ["TABLE.get(name)", "name", "{'none': None}[name]"])
def test_a_policy_that_may_be_none_and_has_perhaps_no_type(dtype: str, tmp_path: Path) -> None:
    found, _ = plan(tmp_path, CHOSEN.replace("DTYPE", dtype))
    assert any("buffer_dtype" in blocker.reason for blocker in found.blockers)
