"""Transformers' TrainingArguments: what `fsdp` and `fsdp_config` become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsdplint.cli.main import main
from fsdplint.diagnostics.finding import Finding, Safety
from fsdplint.engine.check import check
from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.interpreter import load
from fsdplint.registry.rules import rule_by_code

RULE = rule_by_code("FSDP222")
assert RULE is not None
HEAD = "from transformers import TrainingArguments\n\n"


def program(arguments: str) -> str:
    return HEAD + f'args = TrainingArguments("out", {arguments})\n'


def found(folder: Path, text: str) -> Finding:
    path = folder / "train.py"
    path.write_text(text)
    (finding,) = check(load([path]), [RULE()])
    return finding


LOADED = '"cpu_ram_efficient_loading": True'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f'fsdp="full_shard auto_wrap", fsdp_config={{{LOADED}, "sync_module_states": True}}',
            f'fsdp="full_shard auto_wrap", '
            f'fsdp_config={{"version": 2, "reshard_after_forward": True, {LOADED}}}',
        ),
        (
            "fsdp='shard_grad_op', fsdp_config={'fsdp_version': 1, 'sync_module_states': 'false'}",
            "fsdp='shard_grad_op', "
            "fsdp_config={'fsdp_reshard_after_forward': False, 'fsdp_version': 2}",
        ),
        (
            'fsdp=["full_shard", "offload"], fsdp_config=None',
            'fsdp=["full_shard", "offload"], '
            'fsdp_config={"version": 2, "reshard_after_forward": True}',
        ),
        (
            'fsdp="full_shard", max_steps=1',
            'fsdp="full_shard", fsdp_config={"version": 2, "reshard_after_forward": True}, '
            "max_steps=1",
        ),
        (
            'fsdp=True, fsdp_config={"version": 1, "sync_module_states": False}',
            'fsdp=True, fsdp_config={"reshard_after_forward": True, "version": 2}',
        ),
    ],
)
def test_arguments(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(program(before))
    result = fix(Workspace([path], unsafe=True), [RULE()])
    assert result.texts[path] == program(after)
    assert not result.found


def test_a_variable(tmp_path: Path) -> None:
    config = 'config = {\n    "use_orig_params": True,  # x\n    "version": 1,\n}\n'
    path = tmp_path / "train.py"
    path.write_text(
        HEAD + config + 'args = TrainingArguments(fsdp="full_shard", fsdp_config=config)\n'
    )
    result = fix(Workspace([path], unsafe=True), [RULE()])
    new = 'config = {\n    "reshard_after_forward": True,\n    "version": 2,\n}\n'
    assert new in result.texts[path] and not result.found


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ('fsdp="hybrid_shard auto_wrap"', "mesh"),
        ('fsdp="no_shard"', "DistributedDataParallel"),
        ('fsdp="full_shard", fsdp_config={"min_num_params": 5}', "size"),
        ('fsdp="full_shard", fsdp_config={"state_dict_type": "LOCAL_STATE_DICT"}', "LOCAL"),
        ('fsdp="full_shard", fsdp_min_num_params=5', "does not have"),
    ],
)
def test_blockers(arguments: str, word: str, tmp_path: Path) -> None:
    finding = found(tmp_path, program(arguments))
    assert finding.fix is None and finding.blocker is not None and word in finding.blocker


def test_safety(tmp_path: Path) -> None:
    safe = found(tmp_path, program(f'fsdp="full_shard", fsdp_config={{{LOADED}}}'))
    assert safe.fix is not None and safe.fix.safety is Safety.SAFE
    unsafe = found(tmp_path, program('fsdp="full_shard"'))
    assert unsafe.fix is not None and unsafe.fix.safety is Safety.UNSAFE
    assert "sends its weights" in unsafe.fix.title


@pytest.mark.parametrize(
    "arguments",
    [
        "fsdp=flag",
        'fsdp="full_shard", fsdp_config=config()',
        "fsdp=None",
        "fsdp=True",
        "max_steps=1",
    ],
)
def test_not_known_or_not_fsdp1(arguments: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(program(arguments))
    assert not check(load([path]), [RULE()])


def test_a_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is changed where it is named as well; else the finding says so."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        program('fsdp="full_shard auto_wrap", fsdp_config="conf/fsdp.json"').replace(
            "\n\n", "\n# é\n"
        )
    )
    Path("conf").mkdir()
    settings = {
        "fsdp_transformer_layer_cls_to_wrap": ["Block"],
        "fsdp_backward_prefetch": "backward_pre",
        "fsdp_cpu_ram_efficient_loading": "true",
    }
    Path("conf/fsdp.json").write_text(json.dumps(settings, indent=4) + "\n")
    run = CliRunner().invoke(main, ["train.py"])
    assert run.exit_code == 1 and "conf/fsdp.json: name these files" in " ".join(run.output.split())
    run = CliRunner().invoke(main, ["--fix", "train.py", "conf/fsdp.json"])
    assert run.exit_code == 0, run.output
    assert json.loads(Path("conf/fsdp.json").read_text()) == {
        "fsdp_transformer_layer_cls_to_wrap": ["Block"],
        "fsdp_cpu_ram_efficient_loading": "true",
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": True,
    }


def test_requirements_that_are_too_old(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.57.1\n")
    finding = found(tmp_path, program('fsdp="full_shard"'))
    assert finding.blocker is not None and "transformers==4.57.1" in finding.blocker
