"""Accelerate's configuration files: every key, in every form that a file may have."""

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

RULE = rule_by_code("FSDP220")
assert RULE is not None
TOP = "distributed_type: FSDP\n"


def yaml(*lines: str, top: str = TOP) -> str:
    return top + "fsdp_config:\n" + "".join(f"  {line}\n" for line in lines)


def finding(folder: Path, text: str, name: str = "config.yaml") -> Finding:
    path = folder / name
    path.write_bytes(text.encode())
    (found,) = check(load([path]), [RULE()])
    return found


def fixed(folder: Path, text: str, name: str = "config.yaml") -> str:
    """The text after fixing, which finds nothing more to fix."""
    path = folder / name
    path.write_bytes(text.encode())
    result = fix(Workspace([path], unsafe=True), [RULE()])
    assert not result.found, result.found[0].blocker
    return result.texts[path]


def inner(text: str) -> list[str]:
    return [line.strip() for line in text.split("fsdp_config:\n")[1].splitlines()]


FULL = "fsdp_state_dict_type: FULL_STATE_DICT"


@pytest.mark.parametrize(
    ("strategy", "reshard"),
    [
        *(("FULL_SHARD", "true"), ("1", "true"), ("'1'", "true"), ("full_shard", "true")),
        *(("SHARD_GRAD_OP", "false"), ("2", "false")),
    ],
)
def test_strategies(strategy: str, reshard: str, tmp_path: Path) -> None:
    text = yaml(FULL, f"fsdp_sharding_strategy: {strategy}")
    assert f"fsdp_reshard_after_forward: {reshard}" in inner(fixed(tmp_path, text))


@pytest.mark.parametrize("strategy", ["HYBRID_SHARD", "4", "HYBRID_SHARD_ZERO2", "5"])
def test_a_hybrid_strategy_gets_its_mesh(strategy: str, tmp_path: Path) -> None:
    top = TOP + "num_machines: 4\nnum_processes: 32\n"
    text = fixed(tmp_path, yaml(FULL, f"fsdp_sharding_strategy: {strategy}", top=top))
    assert text.endswith(
        "fsdp_version: 2\nparallelism_config:\n"
        "  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 8\n"
    )
    assert ("forward: true" in text) == (strategy in ("HYBRID_SHARD", "4"))


@pytest.mark.parametrize(
    ("lines", "top", "reason"),
    [
        (["fsdp_sharding_strategy: NO_SHARD"], TOP, "MULTI_GPU"),
        (["fsdp_sharding_strategy: 3"], TOP, "MULTI_GPU"),
        (["fsdp_sharding_strategy: 7"], TOP, "not a sharding strategy"),
        (["fsdp_sharding_strategy: HYBRID_SHARD"], TOP, "needs the sizes"),
        (["fsdp_sharding_strategy: 4"], TOP + "num_machines: 1\nnum_processes: 8\n", "FULL_SHARD"),
        (["fsdp_sharding_strategy: 4"], TOP + "num_machines: 2\nnum_processes: 3\n", "do not form"),
        (["fsdp_state_dict_type: LOCAL_STATE_DICT"], TOP, "SHARDED_STATE_DICT or"),
        (["fsdp_state_dict_type: 2"], TOP, "SHARDED_STATE_DICT or"),
        (["fsdp_auto_wrap_policy: SIZE_BASED_WRAP"], TOP, "TRANSFORMER_BASED_WRAP"),
        (["fsdp_reshard_after_forward: HYBRID_SHARD"], TOP, "choose between"),
        (["fsdp_ignored_modules: head"], TOP, "fsdp_cpu_ram_efficient_loading"),
        (
            ["fsdp_version: 1"],
            TOP + "parallelism_config:\n  parallelism_config_tp_size: 2\n",
            "rejects",
        ),
        (["fsdp_use_orig_params: &a true", "x: *a"], TOP, None),
    ],
)
def test_what_has_no_counterpart_is_named(
    lines: list[str], top: str, reason: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml(*lines, top=top))
    found = check(load([path]), [RULE()])
    if reason is None:  # an alias: what it is cannot be read
        assert not found
    else:
        assert found[0].blocker is not None and reason in found[0].blocker
        assert found[0].fix is None


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (["fsdp_cpu_ram_efficient_loading: false"], "sends its weights"),
        (["fsdp_activation_checkpointing: true"], "dropout"),
        (["fsdp_reshard_after_forward: SHARD_GRAD_OP"], "FULL_SHARD"),
        (
            [
                "fsdp_cpu_ram_efficient_loading: false",
                "fsdp_sync_module_states: false",
                "fsdp_ignored_modules: head",
            ],
            "ignored",
        ),
    ],
)
def test_what_may_change_the_program_is_unsafe(lines: list[str], word: str, tmp_path: Path) -> None:
    found = finding(tmp_path, yaml(*lines))
    assert found.fix is not None
    assert found.fix.safety is Safety.UNSAFE and word in found.fix.title


@pytest.mark.parametrize(
    "lines",
    [
        ["fsdp_cpu_ram_efficient_loading: false", "fsdp_sync_module_states: false"],
        ["fsdp_reshard_after_forward: FULL_SHARD", "fsdp_version: 1"],
        ["fsdp_auto_wrap_policy: SIZE_BASED_WRAP", "fsdp_min_num_params: 0"],
        ["fsdp_backward_prefetch: BACKWARD_POST", "fsdp_forward_prefetch: 'true'"],
        ["offload_params: true", "version: '1'"],
    ],
)
def test_the_rest_is_safe(lines: list[str], tmp_path: Path) -> None:
    found = finding(tmp_path, yaml(*lines))
    assert found.fix is not None and found.fix.safety is Safety.SAFE


def test_full_state_dicts_stay_full(tmp_path: Path) -> None:
    lines = inner(fixed(tmp_path, yaml("fsdp_use_orig_params: true", "fsdp_forward_prefetch: no")))
    assert lines == [FULL, "fsdp_version: 2"]


def test_line_ends_and_comments_stay(tmp_path: Path) -> None:
    text = (
        "# é\r\ndistributed_type: FSDP  # yes\r\nfsdp_config:\r\n\r\n"
        "  # how\r\n  sharding_strategy: 'FULL_SHARD'  # all\r\n\r\n"
        "  state_dict_type: SHARDED_STATE_DICT\r\n  sync_module_states: True"
    )
    assert fixed(tmp_path, text) == text.replace(
        "sharding_strategy: 'FULL_SHARD'", "reshard_after_forward: True"
    ).replace("sync_module_states: True", "fsdp_version: 2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (  # nothing behind a key, and lists
            "  fsdp_backward_prefetch:\n  fsdp_transformer_layer_cls_to_wrap:\n    - A\n    - B\n"
            "  fsdp_sharding_strategy: 1\n",
            "  fsdp_transformer_layer_cls_to_wrap:\n    - A\n    - B\n"
            "  fsdp_reshard_after_forward: true\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2\n",
        ),
        (  # braces within lines
            " { fsdp_sharding_strategy: 4, fsdp_use_orig_params: yes }  # x\n",
            " { fsdp_reshard_after_forward: true, fsdp_state_dict_type: FULL_STATE_DICT, "
            "fsdp_version: 2 }  # x\n"
            "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
            "  parallelism_config_dp_shard_size: 4\n",
        ),
        (  # all of them go
            "  fsdp_use_orig_params: true\n  # why\n",
            "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_version: 2\n  # why\n",
        ),
        (
            " {fsdp_transformer_layer_cls_to_wrap: [A, B],\n  fsdp_version: '1'}\n",
            " {fsdp_transformer_layer_cls_to_wrap: [A, B],\n  fsdp_version: 2,\n"
            "  fsdp_state_dict_type: FULL_STATE_DICT}\n",
        ),
    ],
)
def test_forms(before: str, after: str, tmp_path: Path) -> None:
    top = TOP + "num_machines: 2\nnum_processes: 8\nfsdp_config:"
    line = "" if before.startswith(" {") else "\n"
    assert (
        fixed(tmp_path, top + line + before + "debug: no\n") == top + line + after + "debug: no\n"
    )


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json(indent: int | str | None, tmp_path: Path) -> None:
    before = {
        "distributed_type": "FSDP",
        "num_machines": 2,
        "num_processes": 4,
        "fsdp_config": {
            "fsdp_backward_prefetch": "BACKWARD_PRE",
            "fsdp_offload_params": False,
            "fsdp_sharding_strategy": "HYBRID_SHARD",
            "fsdp_sync_module_states": True,
            "fsdp_use_orig_params": True,
        },
        "mixed_precision": "bf16",
    }
    after = {
        **before,
        "fsdp_config": {
            "fsdp_offload_params": False,
            "fsdp_reshard_after_forward": True,
            "fsdp_state_dict_type": "FULL_STATE_DICT",
            "fsdp_version": 2,
        },
        "parallelism_config": {
            "parallelism_config_dp_replicate_size": 2,
            "parallelism_config_dp_shard_size": 2,
        },
    }
    text = fixed(tmp_path, json.dumps(before, indent=indent), "config.json")
    assert json.loads(text) == after
    after["mixed_precision"] = after.pop("mixed_precision")
    assert text == json.dumps(after, indent=indent)


@pytest.mark.parametrize(
    "text",
    [
        "distributed_type: FSDP\nfsdp_config: {}\n",
        "distributed_type: FSDP\n",
        "- distributed_type: FSDP\n",
        "distributed_type: FSDP\nfsdp_config: {{ template }}\n",
        "distributed_type: FSDP\n---\nfsdp_config:\n  fsdp_version: 1\n",
        yaml("fsdp_version: 2", "fsdp_sharding_strategy: FULL_SHARD"),
        yaml("fsdp_version: 1", top=TOP + "compute_environment: AMAZON_SAGEMAKER\n"),
        "",
    ],
)
def test_other_files_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    program = load([path])
    assert not check(program, [RULE()]) and not program.problems


def test_requirements_that_are_too_old(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("accelerate==0.33.0\n")
    found = finding(tmp_path, yaml("fsdp_sharding_strategy: 1"))
    assert found.blocker is not None and "accelerate==0.33.0" in found.blocker
    (tmp_path / "requirements.txt").write_text("accelerate>=0.33.0,<2\n")
    assert finding(tmp_path, yaml("fsdp_sharding_strategy: 1")).fix is not None


def test_in_folders_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations are found, other YAML is not looked at, and a comment turns one off."""
    monkeypatch.chdir(tmp_path)
    text = yaml(FULL, "fsdp_sharding_strategy: 1")
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "off.yml").write_text(
        text.replace("config:", "config: # fsdplint: ignore[FSDP220]")
    )
    (tmp_path / "other.yaml").write_text("a: [1\n")
    (tmp_path / "big.json").write_text('{"distributed_type": "FSDP"}' + " " * 100_000)
    run = CliRunner().invoke(main, [".", "--output-format", "concise"])
    assert run.exit_code == 1 and run.output.count("FSDP220") == 1 and "one.yaml:2:1" in run.output
    run = CliRunner().invoke(main, ["off.yml"])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(main, ["off.yml", "other.yaml"])
    assert run.exit_code == 2 and "other.yaml:2: " in run.output  # whoever names it wants to know
    run = CliRunner().invoke(main, ["--diff", "one.yaml"])
    assert "-  fsdp_sharding_strategy: 1" in run.output
    run = CliRunner().invoke(main, ["--fix", "one.yaml"])
    assert run.exit_code == 0 and "fsdp_version: 2" in (tmp_path / "one.yaml").read_text()
    run = CliRunner().invoke(main, ["-", "--stdin-filename", "x.yaml", "--fix"], input=text)
    assert run.stdout.endswith("fsdp_version: 2\n")


def test_no_yaml_is_imported_for_python_files(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "a.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    (tmp_path / "b.yaml").write_text("a: 1\n")
    code = (
        "import sys\nfrom fsdplint.cli.main import main\n"
        f"main(['check', {str(tmp_path)!r}], standalone_mode=False)\n"
    )
    code = code.replace("main([", "\ntry:\n    main([") + (
        "except SystemExit:\n    pass\nassert not any(n.startswith('ruamel') for n in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_program_that_needs_fsdp1_holds_its_file_back(tmp_path: Path) -> None:
    from fsdplint.engine.operations import fix_files
    from fsdplint.engine.session import Session

    (tmp_path / "config.yaml").write_text(
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    )
    program = tmp_path / "train.py"
    program.write_text(
        "from accelerate import Accelerator\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "accelerator = Accelerator()\nmodel = accelerator.prepare(build())\n"
        "with FSDP.summon_full_params(model):\n    model.generate()\n"
    )
    changes = fix_files(Session([tmp_path]))
    assert tmp_path / "config.yaml" not in changes.texts
    (found,) = [one for one in changes.result.findings if one.rule.code == "FSDP220"]
    assert f"FSDP1 is used here without Accelerate ({program}:6)" in (found.blocker or "")
    program.write_text("from accelerate import Accelerator\n")
    assert tmp_path / "config.yaml" in fix_files(Session([tmp_path])).texts


def test_a_program_without_an_accelerator_does_not(tmp_path: Path) -> None:
    program = tmp_path / "pretrain.py"
    program.write_text(
        "import torch\nfrom accelerate import init_empty_weights\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n"
        "with init_empty_weights():\n    net = torch.nn.Linear(2, 2)\nmodel = FSDP(net)\n"
    )
    path = tmp_path / "config.yaml"
    path.write_text(yaml("fsdp_sharding_strategy: FULL_SHARD"))
    (found,) = check(load([program, path]), [RULE()])
    assert found.fix is not None, found.blocker


def test_comments_that_are_only_about_what_changes_go_with_it(tmp_path: Path) -> None:
    text = yaml(
        "# Settings of all units.",
        "fsdp_offload_params: false",
        "",
        "# when the next layer is gathered",
        "fsdp_backward_prefetch: BACKWARD_PRE # the fastest,",
        "                                     # but with most memory",
        "",
        "# Names of the layers.",
        "fsdp_transformer_layer_cls_to_wrap: Block # of models.py",
        "# the sharding",
        "fsdp_sharding_strategy: 1 # FULL_SHARD (1), SHARD_GRAD_OP (2),",
        "                          # NO_SHARD (3)",
        "# Prefetch in the forward pass.",
        "fsdp_forward_prefetch: false",
        FULL,
        "# Both.",
        "fsdp_use_orig_params: true # as torch does",
        "fsdp_cpu_ram_efficient_loading: true # rank 0 loads",
        top=TOP + "# FSDP\n",
    )
    assert inner(fixed(tmp_path, text)) == [
        "# Settings of all units.",
        "fsdp_offload_params: false",
        "",
        "",
        "# Names of the layers.",
        "fsdp_transformer_layer_cls_to_wrap: Block # of models.py",
        "# the sharding",
        "fsdp_reshard_after_forward: true",
        FULL,
        "# Both.",
        "fsdp_cpu_ram_efficient_loading: true # rank 0 loads",
        "fsdp_version: 2",
    ]
