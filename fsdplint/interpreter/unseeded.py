"""Generators of Python and NumPy that nothing seeds: each process draws numbers of its own.

The generator of torch has the same seed in each process where nothing sets one.
"""

from __future__ import annotations

import re

from fsdplint.interpreter.library_classes import only_reads
from fsdplint.interpreter.local_libraries import works_within_process
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.values import Method, ModuleValue, OptimizerValue, Value
from fsdplint.trace import Prepared, ProcessGroupInit

# Packages that seed no generator, but for trainers of Transformers and functions that say so.
_PACKAGES = (
    "accelerate argparse builtins collections contextlib copy dataclasses datasets "
    "deepspeed diffusers evaluate functools gc glob huggingface_hub inspect io itertools "
    "lightning logging loguru omegaconf os pathlib peft pickle pprint pytorch_lightning "
    "random rich safetensors shutil signal socket subprocess sys tempfile tensorboard "
    "tensorboardX time timm torch torchvision tqdm traceback transformers types typing uuid "
    "wandb warnings"
)
_SEED_NOTHING = re.compile(rf"({'|'.join(_PACKAGES.split())})(\.(?!\w*[Ss]eed).*)?")
_SEEDS = re.compile(r"transformers\.\w*Trainer")


def note_call(run: Run, function: Value, library: str) -> None:
    """A function that is not followed is called, which may seed the generators.

    library: its name, or that of the library function that returned the object of a method.
    """
    if not run.unseeded or works_within_process(library) or only_reads(library):
        return
    if isinstance(function, Method) and isinstance(
        run.settle(function.receiver), ModuleValue | OptimizerValue
    ):
        return
    if not _SEED_NOTHING.fullmatch(library) or _SEEDS.match(library):
        run.unseeded.clear()


def is_unseeded(run: Run, library: str) -> bool:
    """Whether each process certainly draws other numbers from the generator of a library."""
    if library not in run.unseeded or "__main__" not in run.module_scopes:
        return False
    return any(True for _ in run.trace.of(ProcessGroupInit, Prepared))
