"""Wrapping policies that functions of other files make, also where no run reaches the call."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

POLICIES = """\
import functools
from torch.distributed.fsdp.wrap import {name}
import torch.nn as nn


def {function}:
    return functools.partial({name}, {argument})


def of_somebody(maker):
    return maker.policy()
"""
BY_SIZE = POLICIES.format(
    name="size_based_auto_wrap_policy",
    function="by_size(number)",
    argument="min_num_params=number",
)
BY_CLASS = POLICIES.format(
    name="transformer_auto_wrap_policy",
    function="by_class(layer)",
    argument="transformer_layer_cls={layer}",
)
BY_TEST = POLICIES.format(
    name="lambda_auto_wrap_policy",
    function="by_test()",
    argument="lambda_fn=lambda m: isinstance(m, nn.Linear)",
)
OTHER = "def by_size(number):\n    return number\n"
TRAIN = """\
{imports}
from trainers import Trainer
trainer = Trainer()
if trainer.count > 1:
    trainer.model = FSDP(trainer.model, auto_wrap_policy={policy})
"""


def run(tmp_path: Path, imports: str, policy: str, policies: str = BY_SIZE) -> tuple[str, str]:
    """The migrated texts of the program and of the file with the policies."""
    files = {
        "policies.py": policies,
        "other.py": OTHER,
        "train.py": HEAD + TRAIN.format(imports=imports, policy=policy),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = fix(Workspace([tmp_path / name for name in files]), [rule() for rule in all_rules()])
    texts = {path.name: text for path, text in result.texts.items()}
    return texts.get("train.py", files["train.py"]), texts.get("policies.py", policies)


@pytest.mark.parametrize(
    ("imports", "policy"),
    [
        ("import policies", "policies.by_size(20000)"),
        ("import policies as made", "made.by_size(20000)"),
        ("from policies import by_size", "by_size(20000)"),
        ("from policies import by_size as large", "large(20000)"),
    ],
)
def test_a_policy_by_size(imports: str, policy: str, tmp_path: Path) -> None:
    train, policies = run(tmp_path, imports, policy)
    assert "FSDP(" not in train
    assert f"wrap_policy = {policy}\n    wrap_policy(trainer.model)\n" in train
    assert "return functools.partial(shard_large_modules, min_num_params=number)" in policies


@pytest.mark.parametrize(
    ("policy", "file", "written"),
    [
        ("policies.by_class(Block)", BY_CLASS, "lambda module: isinstance(module, layer)"),
        ("policies.by_test()", BY_TEST, "lambda module: isinstance(module, nn.Linear)"),
    ],
)
def test_a_test_of_modules(policy: str, file: str, written: str, tmp_path: Path) -> None:
    train, policies = run(tmp_path, "import policies", policy, file)
    assert f"should_shard = {policy}\n" in train and "FSDP(" not in train
    assert f"return {written}" in policies


@pytest.mark.parametrize(
    ("imports", "policy"),
    [
        ("import policies", "policies.of_somebody(trainer)"),
        ("import policies", "policies.missing()"),
        ("import other", "other.by_size(3)"),
        ("import policies\npolicies = make()", "policies.by_size(3)"),
    ],
)
def test_what_is_not_known_blocks(imports: str, policy: str, tmp_path: Path) -> None:
    train, _ = run(tmp_path, imports, policy)
    assert "FSDP(" in train


@pytest.mark.parametrize(
    ("package", "kept"),
    [
        ("from .wrapping import by_class\n", False),
        ("from .wrapping import by_class, by_size\n", True),
        ("from .wrapping import by_class\nfrom .wrapping import by_size as large\n", True),
    ],
)
def test_an_exported_policy_stays(package: str, kept: bool, tmp_path: Path) -> None:
    """A package exports a policy by size that nothing calls."""
    (tmp_path / "policies").mkdir()
    names = "size_based_auto_wrap_policy, transformer_auto_wrap_policy"
    files = {
        "policies/__init__.py": package,
        "policies/wrapping.py": (
            f"import functools\nfrom torch.distributed.fsdp.wrap import {names}\n\n\n"
            "def by_size(number=100):\n"
            "    return functools.partial(size_based_auto_wrap_policy, min_num_params=number)\n\n\n"
            "def by_class(layer):\n"
            "    return functools.partial(\n"
            "        transformer_auto_wrap_policy, transformer_layer_cls={layer}\n    )\n"
        ),
        "train.py": HEAD
        + "from policies import by_class\nmodel = FSDP(Net(), auto_wrap_policy=by_class(Block))\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = fix(Workspace([tmp_path / name for name in files]), [rule() for rule in all_rules()])
    texts = {str(path.relative_to(tmp_path)): text for path, text in result.texts.items()}
    assert "FSDP(" not in texts["train.py"]
    wrapping = texts["policies/wrapping.py"]
    assert ("def by_size(" in wrapping) == kept
    assert "size_based_auto_wrap_policy" not in wrapping
