"""Values are written out where they are known, instead of dicts and helpers."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit

STRATEGY = """\
strategy = ShardingStrategy.SHARD_GRAD_OP if os.environ.get("FAST") else ShardingStrategy.FULL_SHARD
"""
RESHARD = """\
strategy = "SHARD_GRAD_OP" if os.environ.get("FAST") else "FULL_SHARD"
"""
CHOSEN = {
    "of one module": (
        "model = FSDP(Net(), sharding_strategy=strategy)\n",
        """\
        model = fully_shard(Net(), reshard_after_forward=False if strategy == "SHARD_GRAD_OP" else None)
        """,
    ),
    "of several modules": (
        """\
        model = FSDP(
            Net(), sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({Block}),
        )
        """,
        """\
        model = Net()
        reshard_after_forward = False if strategy == "SHARD_GRAD_OP" else None
        for module in reversed(list(model.modules())):
            if isinstance(module, Block):
                fully_shard(module, reshard_after_forward=reshard_after_forward)
        fully_shard(model, reshard_after_forward=reshard_after_forward)
        """,
    ),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_chosen_strategy_is_an_argument_from_torch_2_8_on(name: str, tmp_path: Path) -> None:
    body, expected = (textwrap.dedent(text) for text in CHOSEN[name])
    text = migrated(tmp_path, STRATEGY + body, Options(explicit("2.8")))
    assert text == RESHARD + expected


@pytest.mark.parametrize("target", [None, "2.7"])
def test_an_older_torch_does_not_take_none(target: str | None, tmp_path: Path) -> None:
    body = "model = FSDP(Net(), sharding_strategy=strategy)\n"
    text = migrated(tmp_path, STRATEGY + body, Options(explicit(target)))
    assert 'fsdp_kwargs = {"reshard_after_forward": False} if strategy' in text


# What nothing depends on is left out --------------------------------------------------------------

LIBRARY = """
from transformers import {model}
from transformers.models.{module} import {layer}
model = FSDP(
    {model}.from_pretrained("x"),
    auto_wrap_policy=ModuleWrapPolicy({{{layer}}}),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16),
)
"""


def test_layers_of_transformers_may_cast_their_inputs(tmp_path: Path) -> None:
    names = {"module": "llama.modeling_llama", "model": "LlamaForCausalLM"}
    text = migrated(tmp_path, LIBRARY.format(layer="LlamaDecoderLayer", **names))
    assert "cast_forward_inputs" not in text
    assert "buffer.data = buffer.data.to(torch.bfloat16)" in text  # those of the embedding


def test_a_model_of_transformers_without_buffers(tmp_path: Path) -> None:
    names = {"module": "t5.modeling_t5", "model": "T5ForConditionalGeneration"}
    text = migrated(tmp_path, LIBRARY.format(layer="T5Block", **names))
    assert "cast_forward_inputs" not in text and "buffer" not in text


def test_another_layer_keeps_its_inputs(tmp_path: Path) -> None:
    names = {"module": "whisper.modeling_whisper", "model": "WhisperModel"}
    text = migrated(tmp_path, LIBRARY.format(layer="WhisperDecoderLayer", **names))
    assert "cast_forward_inputs=False" in text


# Comments and helpers ------------------------------------------------------------------------------


def test_comments_beside_arguments_that_go_away(tmp_path: Path) -> None:
    body = """\
model = FSDP(
    Net(),
    sharding_strategy=ShardingStrategy.FULL_SHARD,  # or SHARD_GRAD_OP
    sync_module_states=True,  # rank 0 has the weights
    device_id=local_rank,
)
"""
    text = migrated(tmp_path, body)
    assert "SHARD_GRAD_OP" not in text and "rank 0 has" not in text


def test_a_helper_knows_only_the_strategies_that_the_program_has(tmp_path: Path) -> None:
    body = """\
def strategy(name: str) -> ShardingStrategy:
    if name == "ddp":
        return ShardingStrategy.NO_SHARD
    return ShardingStrategy.FULL_SHARD


model = FSDP(Net(), sharding_strategy=strategy(os.environ["KIND"]))
"""
    text = migrated(tmp_path, body)
    assert "NO_SHARD" in text and "HYBRID" not in text


def test_a_mesh_in_a_variable_is_indented_once(tmp_path: Path) -> None:
    body = """\
model = FSDP(
    Net(),
    sharding_strategy=ShardingStrategy.NO_SHARD,
    auto_wrap_policy=ModuleWrapPolicy({Block}),
    device_id=torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu"),
)
"""
    text = migrated(tmp_path, body)
    assert "mesh = init_device_mesh(\n    " in text and "\n        (dist" not in text
