"""Parameters that are gathered whole, or block, where they cannot be gathered one by one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan, refusals

BLOCK = "with FSDP.summon_full_params(model{arguments}):\n    {body}"

BLOCKED = {
    "out of sight": ("", "torch.jit.trace(model, ())", "whether .* writes parameters"),
}


@pytest.mark.parametrize(("arguments", "body", "reason"), list(BLOCKED.values()), ids=list(BLOCKED))
def test_what_blocks(arguments: str, body: str, reason: str, tmp_path: Path) -> None:
    code = "model = FSDP(Net())\n" + BLOCK.format(arguments=arguments, body=body) + "\n"
    found, _ = plan(tmp_path, code)
    assert any(re.search(reason, blocker.reason) for blocker in found.blockers)


def test_a_unit_that_is_called_under_mixed_precision_blocks(tmp_path: Path) -> None:
    code = "model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), "
    code += "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))\n"
    code += BLOCK.format(arguments="", body="model.blocks[0](torch.ones(8))") + "\n"
    found, _ = plan(tmp_path, code)
    assert "in full precision" in found.blockers[0].reason
    assert "lower precision will do" in found.blockers[0].advice


AVERAGE = """\
class Average:
    def __init__(self, model):
        self.shadow = {}
        self.update(model)

    def update(self, model):
        with FSDP.summon_full_params(model, writeback=False):
            for name, p in model.named_parameters():
                self.shadow[name] = p.detach().clone()

    def restore(self, model):
        with FSDP.summon_full_params(model):
            for name, p in model.named_parameters():
                p.data.copy_(self.shadow[name])


model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))
average = Average(model)
"""

UNSURE = {
    "also of an unwrapped model": "Average(Net())",
    "also of an unwrapped model of a library": (
        "from transformers import AutoModel\nAverage(AutoModel.from_pretrained('x'))"
    ),
    "a method that is called with an unwrapped model": "average.restore(Net())",
    "a method that code may call that nothing reaches": (
        "def evaluate(average, other):\n    average.restore(other)"
    ),
    "a function that nothing calls": "def compare(other):\n    Average(other)",
}


@pytest.mark.parametrize("rest", list(UNSURE.values()), ids=list(UNSURE))
def test_a_model_that_may_not_be_wrapped_keeps_its_parameters(rest: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, AVERAGE + "\n\n" + rest + "\n")
    assert not found.blockers
    assert "if isinstance(parameter, DTensor):" in text


READS = {
    "written": "p.mul_(2)",
    "written by its data": "p.data[0] = 1",
    "written by a function": "nn.init.zeros_(p)",
    "written in the model": "model.blocks[0].linear.weight.data.mul_(2)",
    "another part of the model": "print(model.blocks[0].linear.weight.norm())",
}


@pytest.mark.parametrize("line", list(READS.values()), ids=list(READS))
def test_what_is_not_one_by_one_gets_whole_parameters(line: str, tmp_path: Path) -> None:
    found, text = plan(
        tmp_path,
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))\n"
        "with FSDP.summon_full_params(model, writeback=False):\n"
        f"    for name, p in model.named_parameters():\n        print(p.norm())\n        {line}\n",
    )
    assert not found.blockers
    assert "with gathered_parameters(model):" in text


@pytest.mark.parametrize(
    "line",
    [
        "norms = [p.norm() for p in model.parameters() if local_rank == 0]",
        "norms = [p.norm() for p in model.parameters()] if local_rank == 0 else []",
        "norm = local_rank == 0 and model.blocks[0].linear.weight.norm()",
        "if local_rank == 0:\n        norms = [p.norm() for p in model.parameters()]",
        "part = model.blocks[0].linear\n    norm = part.weight.norm()",
    ],
)
def test_what_not_all_ranks_read_is_gathered_before(line: str, tmp_path: Path) -> None:
    found, text = plan(
        tmp_path,
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))\n"
        f"with FSDP.summon_full_params(model, writeback=False):\n    {line}\n",
    )
    assert not found.blockers
    assert "with gathered_parameters(model):" in text


def test_gradients_that_are_not_gathered_block(tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        "model = FSDP(Net(), mixed_precision=MixedPrecision(torch.bfloat16))\n"
        "with FSDP.summon_full_params(model, writeback=False):\n"
        "    lines = [p.grad for p in model.parameters()]\n",
    )
    assert found.blockers


def test_a_context_that_is_kept_blocks(tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        "model = FSDP(Net())\ncontext = FSDP.summon_full_params(model)\nprint(context)\n"
        "with context:\n    pass\n",
    )
    assert "which `with` block enters" in found.blockers[0].reason


def test_a_tokenizer_takes_no_state(tmp_path: Path) -> None:
    text = migrated(
        tmp_path,
        """
        model = FSDP(Net())
        with FSDP.summon_full_params(model, writeback=False):
            for p in model.parameters():
                print(p.sum())
            tokenizer.save_pretrained("out")
        """,
    )
    assert "    print(p.sum())\ntokenizer.save_pretrained" in text


def test_a_state_that_other_code_takes_blocks(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        with FSDP.summon_full_params(model, writeback=False):
            if dist.get_rank() == 0:
                model.module.push_to_hub("out")
                tokenizer.save_pretrained("out")
        """
    found, _ = plan(tmp_path, textwrap.dedent(body))
    (blocker,) = [one for one in found.blockers if "summon_full_params" in one.reason]
    assert blocker.source.code(blocker.node) == 'model.module.push_to_hub("out")'


SAVES = {
    "a model": """
        with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
            if dist.get_rank() == 0:
                model.save_pretrained("out")
        """,
    "the module in the wrapper": """
        with FSDP.summon_full_params(model, writeback=False):
            if local_rank == 0:
                model.module.save_pretrained("out", safe_serialization=True)
        """,
    "a model whose adapters are merged": """
        from contextlib import nullcontext

        whole = FSDP.summon_full_params(model) if isinstance(model, FSDP) else nullcontext()
        with whole:
            if dist.get_rank() == 0:
                merged = model.merge_and_unload()
                merged.save_pretrained("out")
        """,
    "its state": """
        with FSDP.summon_full_params(model, writeback=False):
            weights = model.state_dict()
            if dist.get_rank() == 0:
                torch.save(weights, "out.pt")
        """,
}


@pytest.mark.parametrize("name", SAVES)
def test_what_saves_whole_parameters_gets_them(name: str, tmp_path: Path) -> None:
    body = "\nmodel = FSDP(Net())\n" + textwrap.dedent(SAVES[name])
    text = migrated(tmp_path, body)
    assert "gathered_parameters(model)" in text
    assert not refusals(tmp_path, body)


LEFT_EARLY = """\
model = FSDP(Net())
average = {}
with torch.no_grad():
    for _ in range(3):
        with FSDP.summon_full_params(
            model, writeback=False, rank0_only=True, offload_to_cpu=True
        ):
            if dist.get_rank() != 0:
                continue
            for name, p in model.named_parameters():
                average[name] = p.detach().clone()
"""


def test_a_loop_that_some_ranks_skip_reads_gathered_parameters(tmp_path: Path) -> None:
    text = migrated(tmp_path, LEFT_EARLY)
    assert "with gathered_parameters(model):\n            if dist.get_rank() != 0:" in text
    assert "full_tensor().cpu()" not in text
    assert not refusals(tmp_path, LEFT_EARLY)
    later = LEFT_EARLY.replace("continue", "print('skipped')")
    assert "p = p.full_tensor().cpu()" in migrated(tmp_path, later)
