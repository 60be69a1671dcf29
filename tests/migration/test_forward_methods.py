"""Methods of a wrapped model that run outside of its forward."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan

MODEL = """\
class Outer(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)
        self.measure = len

    def size(self, x):
        return self.measure(x)

    def encode(self, x):
        return self.helper(x)

    def helper(self, x):
        return self.head(x)

    def scores(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def width(self):
        return 8

    def again(self, x):
        return self(x)


"""
REGISTERED = 'register_fsdp_forward_method(model, "{}")'


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("y = model.encode(torch.ones(2, 8))", "encode"),
        ("y = model.scores(torch.ones(2, 8))", "scores"),
        ("y = model.module.encode(torch.ones(2, 8))", "encode"),
    ],
)
def test_a_method_that_runs_parts_is_registered(call: str, name: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"{MODEL}model = FSDP(Outer())\n{call}")
    assert f"fully_shard(model)\n{REGISTERED.format(name)}\n" in text
    assert f"y = model.{name}(torch.ones(2, 8))\nmodel.reshard()" in text


@pytest.mark.parametrize(
    "call", ["model.width()", "model.size([1])", "model.again(torch.ones(2, 8))"]
)
def test_other_methods_are_not(call: str, tmp_path: Path) -> None:
    text = migrated(tmp_path, f"{MODEL}model = FSDP(Outer())\n{call}")
    assert "register" not in text and "reshard" not in text


def test_the_method_may_be_missing_in_other_configurations(tmp_path: Path) -> None:
    body = (
        "model = FSDP(build())\n"
        "with torch.no_grad():\n    print(model.generate(torch.ones(2, 8)).sum())\n"
    )
    text = migrated(tmp_path, f"from models import build\n{body}")
    assert f'if hasattr(model, "generate"):\n    {REGISTERED.format("generate")}\n' in text
    assert "    print(model.generate(torch.ones(2, 8)).sum())\n    model.reshard()" in text


def test_a_model_that_is_not_always_wrapped(tmp_path: Path) -> None:
    body = (
        "model = Outer()\nif os.environ.get('SHARD'):\n    model = FSDP(model)\n"
        "y = model.encode(torch.ones(2, 8))"
    )
    text = migrated(tmp_path, MODEL + body)
    assert f"    {REGISTERED.format('encode')}\n" in text
    assert "if isinstance(model, FSDPModule):\n    model.reshard()" in text


def test_a_returned_value_leaves_the_root_gathered(tmp_path: Path) -> None:
    body = (
        "def embed(model, x):\n    return model.encode(x)\n\n\n"
        "model = FSDP(Outer())\nembed(model, torch.ones(2, 8))"
    )
    text = migrated(tmp_path, MODEL + body)
    assert REGISTERED.format("encode") in text and "reshard" not in text


def test_the_variable_of_a_comprehension_is_gone_after_it(tmp_path: Path) -> None:
    body = "model = FSDP(Outer())\ny = [one.encode(torch.ones(2, 8)) for one in (model,)]"
    text = migrated(tmp_path, MODEL + body)
    assert REGISTERED.format("encode") in text and "reshard" not in text


def test_gradients_that_fsdp1_loses_are_noted(tmp_path: Path) -> None:
    body = f"{MODEL}model = FSDP(Outer())\nloss = model.encode(torch.ones(2, 8)).sum()\n"
    found, _ = plan(tmp_path, body + "loss.backward()")
    assert any("gradients of a loss" in note.text for note in found.notes)
    found, _ = plan(tmp_path, body)
    assert not any("gradients of a loss" in note.text for note in found.notes)


LIBRARY = """\
from diffusers import AutoencoderKL, UNet2DModel
coder = AutoencoderKL.from_pretrained("coder")
"""


def test_a_method_of_a_library_that_computes(tmp_path: Path) -> None:
    body = "coder = FSDP(coder)\nwith torch.no_grad():\n    y = coder.encode(batch).sample()"
    text = migrated(tmp_path, f"from data import batch\n{LIBRARY}{body}")
    assert '\nregister_fsdp_forward_method(coder, "encode")' in text
    assert "    y = coder.encode(batch).sample()\n    coder.reshard()" in text


def test_one_function_for_several_classes_of_a_library(tmp_path: Path) -> None:
    body = (
        "def shard(model):\n    return FSDP(model)\n\n\n"
        "other = shard(UNet2DModel())\ncoder = shard(coder)\ny = coder.decode(torch.ones(2, 8))"
    )
    text = migrated(tmp_path, LIBRARY + body)
    assert '    if hasattr(model, "decode"):\n        register_fsdp_forward_method(' in text
