"""Programs that `accelerate launch` starts with FSDP, as a script of the project shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import findings, program

HEAD = """\
import argparse
import torch
from accelerate import Accelerator
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

parser = argparse.ArgumentParser()
parser.add_argument("--fsdp", action="store_true")
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
accelerator = Accelerator({options})
model = nn.Linear(4, 1)
"""
BUILT_FIRST = """\
optimizer = torch.optim.AdamW(model.parameters())
model = accelerator.prepare(model)
optimizer = accelerator.prepare(optimizer)
accelerator.backward(model(torch.randn(2, 4)).sum())
optimizer.step()
"""
SAVED = """\
model = accelerator.prepare(model)
if accelerator.is_main_process:
    accelerator.save_state("state")
"""
STATE = """\
model = accelerator.prepare(model)
if accelerator.is_main_process:
    torch.save(model.state_dict(), "state")
"""
FORWARD = """\
model = accelerator.prepare(model)
if accelerator.is_main_process:
    model(torch.randn(2, 4))
"""
FLAT = "accelerate launch --use_fsdp --fsdp_use_orig_params false main.py\n"
SETTINGS = """\
distributed_type: FSDP
fsdp_config:
  fsdp_version: {version}
  fsdp_use_orig_params: {original}
"""


def codes(
    folder: Path, code: str, script: str, *, options: str = "", settings: str = "", rule: str
) -> bool:
    """Whether a rule finds something in a program that a script of its project starts."""
    (folder / "run.sh").write_text(script)
    (folder / "fsdp.yaml").write_text(settings)
    head = HEAD.replace("{options}", options)
    return bool(findings(program(folder, code, header=head), rule))


@pytest.mark.parametrize(
    ("code", "rule"),
    [(BUILT_FIRST, "FSDP103"), (SAVED, "FSDP501"), (STATE, "FSDP501"), (FORWARD, "FSDP501")],
)
def test_a_program_that_a_script_starts_with_fsdp(tmp_path: Path, code: str, rule: str) -> None:
    assert codes(tmp_path, code, FLAT, rule=rule)


@pytest.mark.parametrize(
    "script",
    [
        "accelerate launch --config_file fsdp.yaml main.py\n",
        "accelerate launch --config_file ./fsdp.yaml $DIR/main.py --fp16\n",
        "accelerate launch --config_file ddp.yaml main.py\n"
        "accelerate launch --config_file fsdp.yaml main.py\n",
    ],
)
def test_a_file_of_settings(tmp_path: Path, script: str) -> None:
    settings = SETTINGS.format(version=1, original="false")
    assert codes(tmp_path, BUILT_FIRST, script, settings=settings, rule="FSDP103")


@pytest.mark.parametrize(
    ("version", "original", "rules"),
    [
        (1, "true", {"FSDP103": False, "FSDP501": True}),
        (2, "false", {"FSDP103": False, "FSDP501": False}),
    ],
)
def test_what_the_settings_say(
    tmp_path: Path, version: int, original: str, rules: dict[str, bool]
) -> None:
    settings = SETTINGS.format(version=version, original=original)
    script = "accelerate launch --config_file fsdp.yaml main.py\n"
    found = {
        rule: codes(tmp_path, code, script, settings=settings, rule=rule)
        for rule, code in (("FSDP103", BUILT_FIRST), ("FSDP501", STATE))
    }
    assert found == rules


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("", ""),
        ("accelerate launch main.py\n", ""),
        ("accelerate launch --use_fsdp other.py\n", ""),
        ("accelerate launch --config_file fsdp.yaml main.py\n", ""),
        ("accelerate launch --config_file $CONFIG main.py\n", ""),
        ("torchrun main.py --use_fsdp\n", ""),
        (FLAT, "deepspeed_plugin=plugin"),
        (FLAT, "cpu=True"),
    ],
)
def test_a_program_that_may_start_without_fsdp(tmp_path: Path, script: str, options: str) -> None:
    settings = "distributed_type: MULTI_GPU\n"
    for code, rule in ((BUILT_FIRST, "FSDP103"), (SAVED, "FSDP501"), (FORWARD, "FSDP501")):
        assert not codes(tmp_path, code, script, options=options, settings=settings, rule=rule)


CHOSEN = "if args.fsdp:\n    model = accelerator.prepare(model)\n" + BUILT_FIRST.replace(
    "model = acc", "if not args.fsdp:\n    model = acc"
)


@pytest.mark.parametrize(
    ("given", "found"), [("--fsdp", False), ("--fsdp --fp16", False), ("--fp16", True), ("", True)]
)
def test_a_flag_of_the_program_that_chooses_fsdp(tmp_path: Path, given: str, found: bool) -> None:
    script = FLAT.replace("main.py", f"main.py {given}")
    assert codes(tmp_path, CHOSEN, script, rule="FSDP103") == found


EARLY = """\
if accelerator.is_main_process:
    torch.save(model.state_dict(), "w.pt")
{wait}
model.load_state_dict(torch.load("w.pt"))
model = accelerator.prepare(model)
"""


@pytest.mark.parametrize(
    ("wait", "found"), [("", True), ("accelerator.wait_for_everyone()", False)]
)
def test_a_file_that_the_ranks_read_too_early(tmp_path: Path, wait: str, found: bool) -> None:
    assert codes(tmp_path, EARLY.format(wait=wait), FLAT, rule="FSDP320") == found


CLIPPED = """\
model = accelerator.prepare(model)
optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters()))
accelerator.backward(model(torch.randn(2, 4)).sum())
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
"""


@pytest.mark.parametrize(("version", "found"), [(1, True), (2, False)])
def test_parameters_that_are_not_flat(tmp_path: Path, version: int, found: bool) -> None:
    script = f"accelerate launch --use_fsdp --fsdp_version {version} main.py\n"
    assert codes(tmp_path, CLIPPED, script, rule="FSDP404") == found


ALONE = "model, optimizer = accelerator.prepare(model, optimizer)\n"
LOOP = """\
loader = torch.utils.data.DataLoader(torch.load("rows.pt"), batch_size=4, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters())
{prepared}
for batch in loader:
    loss = model(batch["x"]).sum()
    accelerator.backward(loss)
    if torch.isnan(loss):
        continue
    optimizer.step()
    accelerator.gather(loss)
"""


@pytest.mark.parametrize(
    ("prepared", "found"),
    [
        ("model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", True),
        (f"{ALONE}loader = accelerator.prepare(loader)", True),
        (f"{ALONE}loader = accelerator.prepare_data_loader(loader)", True),
        (ALONE, False),
    ],
)
def test_batches_of_a_prepared_loader(tmp_path: Path, prepared: str, found: bool) -> None:
    assert codes(tmp_path, LOOP.format(prepared=prepared), FLAT, rule="FSDP501") == found
