"""Programs that `fsdplint --fix` migrates, with the validation of the migrated program."""

from __future__ import annotations

import textwrap
from pathlib import Path

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

HEAD = """\
import functools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import transformers
from torch.distributed.fsdp import FullStateDictConfig, MixedPrecision, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from transformers.models.mistral.modeling_mistral import MistralDecoderLayer

"""


def fixed(tmp_path: Path, body: str) -> str:
    """The text of a program after `fsdplint --fix`."""
    path = tmp_path / "train.py"
    path.write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
    result = fix(Workspace([path]), [rule() for rule in all_rules()])
    return result.texts.get(path, path.read_text(encoding="utf-8"))


def test_a_state_that_save_pretrained_gets(tmp_path: Path) -> None:
    text = fixed(
        tmp_path,
        """
        def save(model, rank):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
                state = model.state_dict()
            if rank == 0:
                model.save_pretrained("out", state_dict=state)


        if __name__ == "__main__":
            rank = int(os.environ["LOCAL_RANK"])
            dist.init_process_group("nccl")
            torch.cuda.set_device(rank)
            model = transformers.AutoModelForCausalLM.from_pretrained("mistral")
            layers = {MistralDecoderLayer}
            policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers)
            model = FSDP(model, auto_wrap_policy=policy, device_id=rank)
            optimizer = torch.optim.AdamW(model.parameters())
            for step in range(10):
                model(torch.ones(1, 4, dtype=torch.long)).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            save(model, rank)
        """,
    )
    assert "FSDP(" not in text
    assert "state = get_model_state_dict(model, options=config)" in text
