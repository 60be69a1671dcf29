"""The FSDP1 programs among the fixtures: their files, and how each is run.

A new program is a file in `fixtures/fsdp1` or `fixtures/fsdp1_cuda` (or a folder, whose first script is
named here), its migrated text in `expected`, and a `Case` below.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
EXPECTED = HERE / "migration" / "expected"
FOLDERS = ("fsdp1", "fsdp1_cuda")
OUT = ("--out", "out")

SUMMED = "the norm that gradients are clipped by is summed in another order"
NOISE = (
    SUMMED
    + ", and of a gradient that is nothing but rounding (a key's bias) Adam makes whole steps"
)
ROUNDED = SUMMED + ", and what that changes is rounded to bf16 or fp16"

KERNELS = "a parameter at another address takes another kernel on some processors; rounded to fp16"


@dataclass(frozen=True)
class Case:
    """A program and its arguments.

    Attributes:
        path: the script, below `fixtures`.
        then: the arguments of a second run that goes on from what the first one has saved.
        apart: why losses and parameters may differ by more than the order of a sum in one matrix product.
    """

    path: str
    args: tuple[str, ...] = OUT
    then: tuple[str, ...] | None = None
    apart: str = ""

    def __str__(self) -> str:
        return " ".join((self.path, *(arg for arg in self.args if arg not in OUT)))


def programs(folders: Sequence[str] = FOLDERS) -> dict[str, list[Path]]:
    """The files of every program, below `fixtures`, by its name."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        for path in sorted((FIXTURES / folder).rglob("*.py")):
            name = path.relative_to(FIXTURES)
            found.setdefault("/".join(name.parts[:2]), []).append(name)
    return found


@cache
def projects() -> tuple[Path, Path]:
    """Copies of `FIXTURES` and `EXPECTED`, each a project by itself; see `project`."""
    folder = _temporary()
    for name, source in (("before", FIXTURES), ("after", EXPECTED)):
        for one in FOLDERS:
            shutil.copytree(source / one, folder / name / one)
        (folder / name / "pyproject.toml").touch()
    return folder / "before", folder / "after"


@cache
def project(*files: Path) -> Path:
    """A folder with copies of files, a project by itself.

    A migration, and a validation, search the project for other uses of what is changed. In place, that
    are all files of this repository, and take most of the time.
    """
    folder = _temporary()
    for file in files:
        shutil.copy(file, folder)
    (folder / "pyproject.toml").touch()
    return folder


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fsdplint-fixtures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def before(name: Path) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def after(name: Path) -> str:
    return (EXPECTED / name).read_text(encoding="utf-8")


def texts(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """The files of a case, the script first, as they are and as they are after the migration."""
    script = Path(case.path)
    files = [script, *(f for f in programs()["/".join(script.parts[:2])] if f != script)]
    names = {file: str(file.relative_to(script.parent)) for file in files}
    return (
        {names[file]: before(file) for file in files},
        {names[file]: after(file) for file in files},
    )


CASES = (
    Case("fsdp1/many_kwargs.py", (*OUT, "--set", "sharding=SHARD_GRAD_OP"), apart=SUMMED),
    Case("fsdp1/many_kwargs.py", (*OUT, "--set", "dtype=bfloat16"), apart=ROUNDED),
    Case("fsdp1/shared_arguments.py"),
    Case("fsdp1/shared_arguments.py", (*OUT, "--strategy", "grad_op")),
    Case("fsdp1/shared_arguments.py", (*OUT, "--strategy", "no_shard")),
    Case("fsdp1/flat_script.py"),
    Case(
        "fsdp1/argparse_functions.py", (*OUT, "--stop-after", "1"), (*OUT, "--resume"), apart=SUMMED
    ),
    Case("fsdp1/trainer_class.py", apart=ROUNDED),
    Case("fsdp1/trainer_class.py", (*OUT, "--precision", "fp32"), apart=NOISE),
    Case("fsdp1/package/train.py", (*OUT, "--stop-at", "4"), (*OUT, "--resume"), apart=ROUNDED),
    Case("fsdp1/config_driven/train.py", apart=ROUNDED),
    Case("fsdp1/config_driven/train.py", (*OUT, "--config", "fsdp_fp32"), apart=SUMMED),
    Case("fsdp1/config_driven/train.py", (*OUT, "--config", "debug_plain")),
    Case("fsdp1/size_policy.py"),
    Case("fsdp1/size_policy.py", (*OUT, "--min-num-params", "5000")),
    Case("fsdp1/lambda_policy.py", ()),
    Case("fsdp1/vit_two_space.py"),
    Case("fsdp1/vit_two_space.py", (*OUT, "--no-bf16")),
    Case("fsdp1_cuda/llama_style.py"),
    Case("fsdp1_cuda/llama_style.py", (*OUT, "--low_cpu_fsdp", "--fsdp_activation_checkpointing")),
    Case(
        "fsdp1_cuda/trainer_nccl.py",
        (*OUT, "--steps", "4"),
        (*OUT, "--resume", "out/encoder.pt"),
        apart=ROUNDED,
    ),
    Case("fsdp1_cuda/trainer_nccl.py", (*OUT, "--precision", "fp16"), apart=KERNELS),
    Case("fsdp1/device_mesh.py", OUT, (*OUT, "--resume")),
    Case("fsdp1/no_shard.py", apart=SUMMED),
    Case("fsdp1/norm_types.py", ()),
    Case("fsdp1/norm_types.py", ("--norm", "1", "--keep"), apart=SUMMED),
    Case("fsdp1/old_dcp/main.py", OUT, (*OUT, "--until", "4", "--resume-from", "2")),
    Case("fsdp1/nested_precision.py"),
    Case("fsdp1/side_input.py", ()),
    Case("fsdp1/frozen_states.py"),
    Case("fsdp1_cuda/frozen_part.py", apart=ROUNDED),
    Case(
        "fsdp1_cuda/recipe/train.py",
        ("--folder", "out"),
        ("--folder", "out", "--resume"),
        apart=ROUNDED,
    ),
    Case("fsdp1_cuda/scaler_accumulation.py", ()),
    Case("fsdp1/hybrid_groups.py"),
    Case("fsdp1/hybrid_groups.py", (*OUT, "--zero2")),
    Case("fsdp1/summon_reading.py", ()),
    Case("fsdp1/weight_clamp.py", OUT),
    Case("fsdp1/sampling.py", ()),
    Case("fsdp1/methods_outside_forward.py", ()),
    Case("fsdp1/optimizer_first.py", ()),
    Case("fsdp1/apply.py", ()),
    Case("fsdp1/inspecting.py", ()),
    Case("fsdp1/always_wrap.py", ()),
    Case("fsdp1/partial_by_hand.py", ()),
    Case("fsdp1/yes_or_no_policy.py", ()),
    Case("fsdp1/unit_arguments.py", ()),
    Case("fsdp1/wrap_layers.py", apart=SUMMED),
    Case("fsdp1/wrap_context.py", apart=SUMMED),
    Case("fsdp1/sharded_legacy.py", OUT, (*OUT, "--resume")),
    Case("fsdp1/offloaded_activations.py", (), apart=SUMMED),
    Case("fsdp1/old_import.py", ()),
    Case("fsdp1_cuda/meta_init.py"),
    Case("fsdp1_cuda/hybrid_presets.py"),
    Case("fsdp1_cuda/hybrid_presets.py", (*OUT, "--preset", "hybrid_zero2", "--precision", "bf16")),
    Case("fsdp1_cuda/hybrid_presets.py", (*OUT, "--preset", "ddp", "--precision", "mixed")),
    Case("fsdp1_cuda/hybrid_presets.py", (*OUT, "--preset", "fsdp", "--offload")),
    Case("fsdp1/legacy_optim.py", OUT, (*OUT, "--epochs", "2", "--load", "scatter")),
    Case("fsdp1/legacy_optim.py", OUT, (*OUT, "--epochs", "2", "--load", "shard")),
    Case("fsdp1/set_type.py", OUT, (*OUT, "--steps", "4")),
    Case("fsdp1/ignored_states.py", ()),
    Case("fsdp1/by_number.py"),
)
