"""`fsdplint migrate`: what it says, what it writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import fsdplint
from fsdplint.cli.main import main

TRAIN = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4)).sum().backward()
model.clip_grad_norm_(1.0)
optimizer.step()
dist.destroy_process_group()
"""
BLOCKER = "torch.distributed.fsdp._runtime_utils._lazy_init(model, model)\n"  # FSDP1's inside
BLOCKED = TRAIN.replace("optimizer.step", BLOCKER + "optimizer.step")
WRAPPING = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel


def wrap(model):
    return FullyShardedDataParallel(model, device_id=torch.cuda.current_device())
"""
USES_WRAPPING = """\
import torch
from shared.wrapping import wrap

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(torch.distributed.get_rank())
model = wrap(torch.nn.Linear(8, 8))
"""
LIBRARY = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel


class Trainer:
    def __init__(self, rank):
        torch.cuda.set_device(rank)
        self.model = FullyShardedDataParallel(torch.nn.Linear(8, 8))


def train(rank):
    trainer = Trainer(rank)
    trainer.model(torch.randn(2, 8)).sum().backward()
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_a_report_and_nothing_written(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    result = run("migrate", ".")
    assert result.exit_code == 1, result.output
    assert (folder / "train.py").read_text() == TRAIN
    lines = result.output.splitlines()
    assert lines[0] == "train.py: can be migrated whole (3 changes in 1 file)"
    assert "  train.py:7: Shard the model with fully_shard" in lines
    assert '    - model = FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))' in lines
    assert "  train.py:10: Clip with torch.nn.utils.clip_grad_norm_" in lines
    assert "    fsdplint prove train.py" in lines
    assert lines[-2:] == ["1 program can be migrated whole.", "Nothing was written: --fix writes."]
    assert run("migrate", "--exit-zero").exit_code == 0


@pytest.mark.parametrize("option", ["--exclude", "--extend-exclude"])
def test_excluded_files_stay(folder: Path, option: str) -> None:
    (folder / "train.py").write_text(TRAIN)
    (folder / "old").mkdir()
    (folder / "old" / "train.py").write_text(TRAIN)
    result = run("migrate", "--fix", option, "old/,*.tmp", ".")
    assert result.exit_code == 0, result.output
    assert "fully_shard" in (folder / "train.py").read_text()
    assert (folder / "old" / "train.py").read_text() == TRAIN


@pytest.mark.parametrize("arguments", [(), ("--isolated",), ("--config", "other.toml")])
def test_the_settings_of_the_report(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "train.py").write_text(TRAIN)
    (folder / "fsdplint.toml").write_text('exclude = ["train.py"]')
    (folder / "other.toml").write_text('exclude = ["other.py"]')
    result = run("migrate", *arguments, ".")
    assert ("can be migrated whole" in result.output) is bool(arguments)


def test_a_report_says_how_much_was_covered(folder: Path) -> None:
    unused = "\n\ndef save(model):\n    torch.save(model.state_dict(), 'model.pt')\n"
    (folder / "train.py").write_text(TRAIN + unused)
    result = run("migrate", ".", "--report", "report.json")
    line = "The check covered 5 of 7 calls of the FSDP API. See fsdplint check --coverage."
    assert line in result.output.splitlines()
    report = json.loads((folder / "report.json").read_text())
    assert report["coverage"] == {"sites": 7, "covered": 5}


def test_the_copy_holds_all_programs_of_a_migration(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "shared"\n')
    (folder / "shared").mkdir()
    (folder / "shared" / "wrapping.py").write_text(WRAPPING)
    for name in ("images", "texts"):
        (folder / "examples" / name).mkdir(parents=True)
        (folder / "examples" / name / "train.py").write_text(USES_WRAPPING)
    result = run("migrate", "--fix", ".")
    assert "1 program migrated whole" in result.output, result.output
    for name in ("images", "texts"):
        script = f"examples/{name}/train.py"
        assert f"fsdplint prove ../before/{script} --against {script}" in result.output


def test_the_proof_of_a_migrated_library_needs_a_script(folder: Path) -> None:
    (folder / "training.py").write_text(LIBRARY)
    result = run("migrate", "--fix", ".")
    line = "fsdplint prove ../before/SCRIPT --against SCRIPT -- ARGS"
    assert line in result.output, result.output


def test_fix_writes_what_the_report_says(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(TRAIN)
    assert run("migrate", ".", "--report", "report.json").exit_code == 1
    (program,) = json.loads((folder / "report.json").read_text())["programs"]
    assert program["verdict"] == "migratable"
    result = run("migrate", "--fix", "train.py")
    assert result.exit_code == 0, result.output
    assert "train.py: migrated whole (3 changes in 1 file)" in result.output
    assert "fsdplint prove ../before/train.py --against train.py" in result.output
    lines = TRAIN.splitlines()
    for change in reversed(program["changes"]):
        row, count = change["row"] - 1, len(change["before"])
        assert lines[row : row + count] == change["before"]
        lines[row : row + count] = change["after"]
    assert file.read_text().splitlines() == lines
    for change in program["changes"]:
        row = change["new_row"] - 1
        assert lines[row : row + len(change["after"])] == change["after"]
    again = run("migrate", "--fix", "train.py")
    assert (again.exit_code, again.output) == (
        0,
        "No use of FSDP1 was found; there is nothing to migrate.\n",
    )


@pytest.mark.parametrize("text", ["x = (\n", "from torch.distributed.fsdp import FSDP\nx = (\n"])
@pytest.mark.parametrize("output", [(), ("--diff",), ("--report", "report.md")])
def test_nothing_is_said_about_files_that_cannot_be_read(
    folder: Path, text: str, output: tuple[str, ...]
) -> None:
    (folder / "bad.py").write_text(text)
    result = run("migrate", "bad.py", *output)
    assert result.exit_code == 2
    assert "FSDP901" in result.output
    assert "No use of FSDP1" not in result.output


def test_what_blocks_and_what_to_decide(folder: Path) -> None:
    (folder / "train.py").write_text(BLOCKED)
    result = run("migrate", "--fix", ".")
    assert result.exit_code == 1
    assert (folder / "train.py").read_text() == BLOCKED
    lines = result.output.splitlines()
    assert lines[0] == "train.py: not migrated: blocked at 1 place"
    assert any("train.py:11: FSDP201 `_runtime_utils._lazy_init`" in line for line in lines)
    assert f"    11 | {BLOCKER}".rstrip() in lines
    assert any(line.startswith("    = to do: ") for line in lines)
    assert lines[-1] == "1 program blocked at 1 place; nothing of it is rewritten."


def test_a_diff_names_what_blocks(folder: Path) -> None:
    (folder / "train.py").write_text(BLOCKED)
    result = run("migrate", "--diff", ".")
    assert any("train.py:11: FSDP201" in line for line in result.stderr.splitlines())
    assert result.stdout == ""


def test_every_name_of_fsdp1_that_stays_is_told(folder: Path) -> None:
    (folder / "imports.py").write_text(TRAIN.splitlines()[3] + "\n")
    (folder / "plugin.py").write_text(
        "from functools import partial\n"
        "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        "from torch.distributed.fsdp import FullStateDictConfig\n"
        "from torch.distributed.fsdp.wrap import always_wrap_policy\n"
        "policy = partial(always_wrap_policy)\n"
        "plugin = FullyShardedDataParallelPlugin(\n"
        "    auto_wrap_policy=policy, state_dict_config=FullStateDictConfig()\n)\n"
        "accelerator = Accelerator(fsdp_plugin=plugin)\n"
    )
    result = run("migrate", ".", "--report", "report.json")
    assert result.exit_code == 1, result.output
    programs = json.loads((folder / "report.json").read_text())["programs"]
    told = {
        Path(one["files"][0]).name: ({b["row"] for b in one["blockers"]}, one["waiting"])
        for one in programs
    }
    assert "imports.py" not in told  # nothing uses what it imports
    rows, waiting = told["plugin.py"]
    assert rows == {6} and [place["row"] for place in waiting] == [5]


def test_annotate(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(BLOCKED)
    assert run("migrate", "--annotate", ".").exit_code == 1
    marked = file.read_text()
    line = "# fsdplint: FSDP201 blocks the migration: `_runtime_utils._lazy_init`"
    assert [x.startswith(line) for x in marked.splitlines()].count(True) == 1
    assert marked.replace(next(x for x in marked.splitlines() if line in x) + "\n", "") == BLOCKED
    run("migrate", "--annotate", "--fix", ".")
    assert file.read_text() == marked
    file.write_text(marked.replace(BLOCKER, ""))
    run("migrate", "--annotate", ".")
    assert file.read_text() == TRAIN
    file.write_text(marked.replace(BLOCKER, ""))
    assert run("migrate", "--fix", ".").exit_code == 0
    assert "blocks the migration" not in file.read_text()


def test_annotate_a_file_that_does_not_mention_fsdp(folder: Path) -> None:
    (folder / "train.py").write_text(f"from steps import norms\n{TRAIN}\nprint(norms(model))\n")
    helper = folder / "steps.py"
    helper.write_text("def norms(model):\n    return [p.grad.sum() for p in model.parameters()]\n")
    assert run("migrate", "--annotate", ".").exit_code == 1
    assert "# fsdplint: FSDP201 blocks the migration" in helper.read_text()


def test_two_programs_are_two_sections(folder: Path) -> None:
    (folder / "good.py").write_text(TRAIN)
    (folder / "bad.py").write_text(BLOCKED)
    result = run("migrate", "--fix", ".", "--report", "out.md")
    assert result.exit_code == 1
    text = (folder / "out.md").read_text()
    assert "| `good.py` | migrated whole (3 changes in 1 file) |" in text
    assert "| `bad.py` | not migrated: blocked at 1 place |" in text
    assert "```diff\n-model.clip_grad_norm_(1.0)\n+" in text
    assert "**To do:**" in text
    assert (folder / "bad.py").read_text() == BLOCKED
    assert "FSDP(" not in (folder / "good.py").read_text()


def test_comments_and_settings_hold(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN.replace("(1.0)\n", "(1.0)  # noqa: FSDP204\n"))
    result = run("migrate", "--fix", ".")
    assert result.exit_code == 1
    assert "train.py:10: FSDP204 FSDP204 is turned off here" in result.output
    (folder / "train.py").write_text(TRAIN)
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\nselect = ["FSDP1"]\n')
    assert "can be migrated whole" in run("migrate", ".").output
    (folder / "pyproject.toml").write_text('[tool.fsdplint]\ntarget-torch = "2.5"\n')
    result = run("migrate", "--fix", ".")
    assert "the fix needs torch 2.6; target-torch is 2.5" in result.output
    assert result.output.count("needs torch 2.6") == 1
    result = run("migrate", "--target-torch", "2.6", ".")
    assert "    fsdplint prove --target-torch 2.6 train.py" in result.output.splitlines()
    assert run("migrate", "--fix", "--target-torch", "2.6", ".").exit_code == 0


def test_files_outside_of_the_paths(folder: Path) -> None:
    (folder / "wrap.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def wrap(model):\n    return FSDP(model, device_id=0)\n"
    )
    text = TRAIN.replace(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
        "from wrap import wrap",
    )
    text = text.replace(
        'FSDP(nn.Linear(4, 4), device_id=torch.device("cpu"))', "wrap(nn.Linear(4, 4))"
    )
    (folder / "train.py").write_text(text)
    result = run("migrate", "--fix", "train.py")
    assert result.exit_code == 1, result.output
    assert "Files outside of the paths that must change too: wrap.py" in result.output
    shown = run("migrate", "--diff", "train.py")
    assert shown.stdout == ""
    assert "train.py: files outside of the paths must change too: wrap.py" in shown.stderr
    assert (folder / "train.py").read_text() == text
    assert "give --project" in result.output
    (folder / "pyproject.toml").touch()
    result = run("migrate", "--fix", "--project", "train.py")
    assert result.exit_code == 0, result.output
    assert "fully_shard" in (folder / "wrap.py").read_text()


ACCELERATE = """\
distributed_type: FSDP  # a comment
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: "no"
num_processes: 2
"""


def test_settings_of_frameworks(folder: Path) -> None:
    (folder / "good.yaml").write_text(ACCELERATE)
    (folder / "bad.yaml").write_text(ACCELERATE.replace("FULL_SHARD", "NO_SHARD"))
    result = run("migrate", "--fix", "--annotate", ".")
    assert result.exit_code == 1, result.output
    assert "good.yaml: migrated whole" in result.output
    assert "bad.yaml:2: FSDP220 `NO_SHARD` replicates the model" in result.output
    assert "fsdp_version: 2" in (folder / "good.yaml").read_text()
    assert "fsdp_version: 2" not in (folder / "bad.yaml").read_text()


def test_trouble(folder: Path) -> None:
    assert run("migrate", "gone.py").exit_code == 2
    (folder / "broken.py").write_text("import torch.distributed.fsdp\ndef f(:\n")
    assert run("migrate", ".").exit_code == 2
    result = run("migrate", ".", "--report", "report.txt")
    assert result.exit_code == 2
    assert "must end in .md or .json" in result.output
    assert run("migrate", ".", "--fix", "--report", "gone/report.md").exit_code == 2
    (folder / "broken.py").unlink()
    assert run("migrate", ".").exit_code == 0
    assert "migrate" in run("--help").output


def test_titles_say_what_is_done(folder: Path) -> None:
    (folder / "train.py").write_text(
        TRAIN.replace(
            "import FullyShardedDataParallel as FSDP",
            "import FullyShardedDataParallel as FSDP, MixedPrecision, StateDictType",
        ).replace(
            "optimizer.step()\n",
            "optimizer.step()\n"
            "precision = MixedPrecision(param_dtype=torch.bfloat16)\n"
            "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):\n"
            "    print('saving')\n"
            "    state = model.state_dict()\n"
            "\n"
            "    print('saved')\n"
            "    print(len(state))\n",
        )
    )
    run("migrate", ".", "--report", "report.json")
    (program,) = json.loads((folder / "report.json").read_text())["programs"]
    assert program["verdict"] == "migratable", program["blockers"]
    titles = {change["row"]: change["titles"] for change in program["changes"]}
    assert titles[4] == ["Import what the new code uses"]
    assert titles[12] == [
        "Set the precision with MixedPrecisionPolicy",
        "Take and load the state with torch.distributed.checkpoint",
    ]
    assert titles[17] == ["Move these lines out of the block around them"]


def test_the_program_to_prove_is_the_one_that_is_run(folder: Path) -> None:
    """And not the file that wraps the model, which it imports."""
    head, tail = TRAIN.split("optimizer = ")
    setup = head.index("model = ")
    (folder / "wrapped.py").write_text(head.replace('dist.init_process_group("gloo")\n', ""))
    (folder / "train.py").write_text(
        head[:setup].replace(head.splitlines(True)[3], "")
        + f"from wrapped import model\noptimizer = {tail}"
    )
    for paths in (["."], ["wrapped.py"], ["train.py"], ["wrapped.py", "train.py"]):
        result = run("migrate", *paths)
        commands = [x.strip() for x in result.output.splitlines() if "fsdplint prove" in x]
        assert commands == ["fsdplint prove train.py"], paths


def test_colours(folder: Path) -> None:
    (folder / "train.py").write_text(TRAIN)
    assert "\x1b[" not in run("migrate", ".").output
    assert "\x1b[1mtrain.py: can be migrated" in run("migrate", "--color", "always", ".").output


def test_a_name_that_comes_through_another_file_is_followed(folder: Path) -> None:
    (folder / "names.py").write_text(TRAIN.splitlines()[3] + "\n")
    (folder / "train.py").write_text(TRAIN.replace(TRAIN.splitlines()[3], "from names import FSDP"))
    run("migrate", "--report", "report.json", ".")
    (program,) = json.loads((folder / "report.json").read_text())["programs"]
    assert program["blockers"] == []
    assert run("--fix", ".").exit_code == 0
    assert "FSDP(" not in (folder / "train.py").read_text()


PREFETCHING = TRAIN.replace('device("cpu"))', 'device("cpu"), forward_prefetch=True)')


def test_fix_and_diff_say_what_changes_as_migrate_does(folder: Path) -> None:
    file = folder / "train.py"
    file.write_text(PREFETCHING)
    run("migrate", "--report", "report.json", "train.py")
    (program,) = json.loads((folder / "report.json").read_text())["programs"]
    notes = program["notes"]
    assert notes
    head = "What changes in behaviour or cost:"
    words = " ".join(notes[0]["text"].split())
    diff = run("--diff", "train.py")
    assert head not in diff.stdout
    assert head in diff.stderr
    assert words in " ".join(diff.stderr.split())
    found = json.loads(run("--output-format", "json", "train.py").stdout)
    assert [one["fix"]["notes"] for one in found if one["fix"]["group"]] == [notes] * len(found)
    (first, *_) = fsdplint.check(["train.py"]).findings
    assert first.fix is not None
    assert [note.text for note in first.fix.notes] == [note["text"] for note in notes]
    fixed = run("--fix", "--output-format", "json", "train.py")
    assert json.loads(fixed.stdout) == []
    assert words in " ".join(fixed.stderr.split())
    assert run("--fix", "train.py").stderr == ""


PLUGIN = """\
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

precision = MixedPrecision(param_dtype=torch.bfloat16)
half = MixedPrecision(param_dtype=torch.float16)
plugin = FullyShardedDataParallelPlugin(
    sharding_strategy=ShardingStrategy.FULL_SHARD, mixed_precision_policy=precision
)
accelerator = Accelerator(fsdp_plugin=plugin)
model = accelerator.prepare(nn.Linear(4, 4))
optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
loss = model(torch.randn(2, 4)).sum()
accelerator.backward(loss)
optimizer.step()
"""


def test_settings_of_a_framework_are_no_second_program(folder: Path) -> None:
    (folder / "train.py").write_text(PLUGIN)
    result = run("migrate", ".", "--report", "report.json")
    assert "1 program blocked at 4 places; nothing of it is rewritten." in result.output
    (section,) = json.loads((folder / "report.json").read_text())["programs"]
    assert {one["code"] for one in section["blockers"]} == {"FSDP201", "FSDP221"}


GROUPS = """\
groups = [
    {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.SGD(groups, lr=0.1)
"""


def test_a_change_of_what_is_trained_is_one_decision(folder: Path) -> None:
    line = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    (folder / "train.py").write_text(TRAIN.replace(line, GROUPS))
    result = run("migrate", ".", "--report", "report.json")
    (program,) = json.loads((folder / "report.json").read_text())["programs"]
    (blocker,) = program["blockers"]
    assert blocker["blocker"] == "FSDP201-unsafe-rewrite" and blocker["row"] == 9
    assert "also at train.py:10" in blocker["reason"]
    assert "--unsafe-fixes" in blocker["advice"]
    assert [one["row"] for one in program["waiting"]] == [7, 14], result.output
    assert run("migrate", ".", "--fix", "--unsafe-fixes").exit_code == 0
