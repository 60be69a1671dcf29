"""Models of Transformers: their parts are not known, but that all parameters are sharded is."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import events, findings, program

from fsdplint.trace import ParametersTied, ShardComputed, TensorsMixed

MODEL = (
    "import copy\nfrom transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('x')\n"
)
SHARDED = (
    f"{MODEL}for block in model.model.layers:\n    fully_shard(block)\nfully_shard(model{{}})\n"
)
STEP = "model(x).logits.mean().backward()\noptimizer.step()\noptimizer.zero_grad()\n"
AVERAGE = (
    f"{MODEL}average = copy.deepcopy(model)\nfully_shard(model)\n"
    f"optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n{STEP}"
    "for kept, new in zip(average.parameters(), model.parameters()):\n    kept.lerp_(new, 0.1)\n"
)
TIED = "{}model(x)\nmodel.lm_head.weight = model.model.embed_tokens.weight\n"


def test_an_average_of_a_copy_from_before(tmp_path: Path) -> None:
    found = program(tmp_path, AVERAGE)
    assert [event.api for event in events(found, TensorsMixed)] == ["lerp_"]


def test_unknown_code_may_have_gathered_the_model(tmp_path: Path) -> None:
    found = program(tmp_path, AVERAGE.replace("for kept", "zoo(model)\nfor kept"))
    assert not list(events(found, TensorsMixed))


@pytest.mark.parametrize("sharded", [f"{MODEL}fully_shard(model)\n", SHARDED.format("")])
def test_the_weight_of_a_layer_is_a_parameter(tmp_path: Path, sharded: str) -> None:
    (tie,) = events(program(tmp_path, TIED.format(sharded)), ParametersTied)
    assert tie.other is not None and tie.name == "weight"


def test_a_loss_with_the_weight_of_the_head(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        f"{MODEL}fully_shard(model.lm_head)\nfully_shard(model)\n"
        "hidden = model(x)\ntorch.matmul(hidden, model.lm_head.weight.t()).mean().backward()\n",
    )
    assert [event.api for event in events(found, ShardComputed)] == ["torch.matmul"]


def test_settings_of_a_model_are_no_parameters(tmp_path: Path) -> None:
    found = program(tmp_path, f"{MODEL}fully_shard(model)\nmodel.config.loss.weight = 1.0\n")
    assert not list(events(found, ParametersTied))


@pytest.mark.parametrize(
    ("parts", "number"),
    [
        ("", 1),
        ("fully_shard(model.model)\n", 0),  # it may have all parameters but those of the head
        ("fully_shard(model.model)\nfully_shard(model.lm_head)\n", 0),
    ],
)
def test_what_the_root_has_beside_the_blocks(tmp_path: Path, parts: str, number: int) -> None:
    code = SHARDED.format(", reshard_after_forward=True").replace(
        "fully_shard(model,", f"{parts}fully_shard(model,"
    )
    found = program(tmp_path, f"{code}optimizer = torch.optim.SGD(model.parameters())\n{STEP}")
    assert len(findings(found, "FSDP601")) == number


ON_META = (
    "from transformers import AutoConfig, AutoModelForCausalLM\nwith torch.device('meta'):\n"
    "    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('x'))\n"
    "fully_shard(model)\nmodel.to_empty(device='cpu')\n{}"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor _ in range(2):\n"
    "    model(x).logits.mean().backward()\n    optimizer.step()\n"
)


@pytest.mark.parametrize(
    "setting",
    [
        "model.init_weights()\n",
        "model.apply(model._init_weights)\n",
        "for layer in model.model.layers:\n    layer.reset()\n",
        "model.load_state_dict(torch.load('x.pt'), assign=True)\n",
        "zoo(model)\n",
    ],
)
def test_a_method_out_of_sight_may_give_parameters_values(tmp_path: Path, setting: str) -> None:
    assert not findings(program(tmp_path, ON_META.format(setting)), "FSDP134")


@pytest.mark.parametrize("reading", ["", "model.train()\n", "sum(model.parameters())\n"])
def test_parameters_that_nothing_initialised(tmp_path: Path, reading: str) -> None:
    assert findings(program(tmp_path, ON_META.format(reading)), "FSDP134")


def test_weights_that_each_rank_draws_of_its_own_seed(tmp_path: Path) -> None:
    code = (
        "from transformers import AutoConfig, AutoModelForCausalLM\n"
        "torch.manual_seed(dist.get_rank())\n"
        "model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained('x'))\n"
        "for layer in model.model.layers:\n    fully_shard(layer)\nfully_shard(model)\nmodel(x)\n"
    )
    assert findings(program(tmp_path, code), "FSDP308")
    loaded = code.replace("from_config(AutoConfig.from_pretrained('x'))", "from_pretrained('x')")
    assert not findings(program(tmp_path, loaded), "FSDP308")


@pytest.mark.parametrize(("state", "number"), [("model.module", 1), ("model", 0)])
def test_the_state_without_the_wrapper(tmp_path: Path, state: str, number: int) -> None:
    code = (
        "import functools\n"
        "from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy\n"
        "from transformers.models.llama.modeling_llama import LlamaDecoderLayer\n"
        f"{MODEL}policy = functools.partial(\n    transformer_auto_wrap_policy, "
        "transformer_layer_cls={LlamaDecoderLayer})\n"
        "model = FSDP(model, auto_wrap_policy=policy, use_orig_params=True)\nmodel(x)\n"
        f"state = {state}.state_dict()\nif dist.get_rank() == 0:\n    torch.save(state, 'x.pt')\n"
    )
    assert len(findings(program(tmp_path, code), "FSDP301")) == number


def test_an_object_that_got_the_model_may_load_its_weights(tmp_path: Path) -> None:
    made = "import zoo\nkeeper = zoo.Checkpointer(model)\nfully_shard(model)\n"
    code = ON_META.replace("fully_shard(model)\n", made)
    assert not findings(program(tmp_path, code.format("keeper.load('x')\n")), "FSDP134")


OUTSIDE = {
    "a model without its head": "hidden = model.model(x)[0]",
    "the head": "logits = model.lm_head(torch.ones(2, 8))",
    "the embedding": "embeds = model.model.embed_tokens(x)",
}


@pytest.mark.parametrize("call", OUTSIDE.values(), ids=OUTSIDE)
def test_a_part_that_is_called_outside_of_the_model(tmp_path: Path, call: str) -> None:
    assert findings(program(tmp_path, SHARDED.format("") + call), "FSDP132")


INSIDE = {
    "with its head": "hidden = model(x)[0]",
    "a part with a group of its own": (
        "fully_shard(model.model)\nfully_shard(model)\nhidden = model.model(x)[0]"
    ),
    "after a forward that keeps the root": "model(x)\nlogits = model.lm_head(torch.ones(2, 8))",
    "parts with groups of their own": (
        "for part in (*model.model.layers, model.model.embed_tokens, model.model.norm):\n"
        "    fully_shard(part)\nfully_shard(model)\nhidden = model.model(x)[0]"
    ),
    "not sharded": "hidden = model.model(x)[0]",
    "a block": "fully_shard(model)\nhidden = model.unknown(x)",
}


@pytest.mark.parametrize("call", INSIDE.values(), ids=INSIDE)
def test_parts_that_may_be_called(tmp_path: Path, call: str) -> None:
    sharded = SHARDED.format("") if call.startswith(("hidden = model(", "model(")) else MODEL
    assert not findings(program(tmp_path, sharded + call), "FSDP132")
