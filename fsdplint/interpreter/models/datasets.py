"""Whether every rank gets the same data: datasets that the program builds, and loaders of them.

Only certain facts count: a dataset does not if unknown code may have selected a part by rank.
"""

from __future__ import annotations

import re

from fsdplint.interpreter import data_probes
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.rank_invariance import (
    is_code_invariant,
    is_rank_invariant,
    is_same_file,
)
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import GeneratorValue, LoaderValue, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Function,
    Instance,
    LibraryObject,
    Partial,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import SplitPerRank

DATA = "torch.utils.data"
# Functions and classes that load a dataset, which is the same for all ranks.
_LOADED = ("torchvision.datasets.", "datasets.load_")
_MIXES = re.compile(r"\b(shuffle|train_test_split)\(")  # methods of it that draw random numbers
_OWN_DATASETS = ([f"{DATA}.Dataset"], [f"{DATA}.IterableDataset"])  # the bases of a class
_MASKS = re.compile(r"LanguageModeling|WholeWord|SOP|noise|mask", re.I)  # collators by chance


@function(f"{DATA}.Subset")
def subset(run: Run, name: str, call: Call) -> Value:
    given = {"dataset": call.arg(0, "dataset"), "indices": call.arg(1, "indices")}
    return LibraryObject(name, {n: v for n, v in given.items() if v is not None}, call.open)


@function(f"{DATA}.TensorDataset")
def tensor_dataset(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(name, {str(n): v for n, v in enumerate(call.args)}, call.open)


@function(f"{DATA}.random_split")
def random_split(run: Run, name: str, call: Call) -> Value:
    """Each rank splits by itself: in the same way only with the same seed."""
    dataset = run.settle(call.arg(0, "dataset") or Unknown())
    given = call.arg(2, "generator")
    generator = run.settle(given) if given is not None and not is_none(given) else None
    own = run.draws_own_numbers and not call.open
    if generator is not None:
        own = isinstance(generator, GeneratorValue) and generator.per_rank
    if own and not run.decisions.single_rank and _has_no_part(run, dataset):
        run.emit(SplitPerRank, call.node)
    return Unknown(library=name)


def _has_no_part(run: Run, dataset: Value) -> bool:
    """Whether all ranks have a whole dataset: nothing in it is the part of a rank."""
    if _same_dataset(run, dataset):
        return True
    if not isinstance(dataset, LibraryObject) or dataset.name != f"{DATA}.TensorDataset":
        return False
    parts = [run.settle(one) for one in dataset.args.values()]
    return not dataset.open and all(
        isinstance(one, Unknown)
        and one.library.startswith("torch.")
        and not depends_on_rank(one)
        and local_of(one) is None
        for one in parts
    )


def same_on_all_ranks(run: Run, loader: LoaderValue) -> bool | None:
    """Whether a pass over a loader gives every rank the same batches; None if unknown."""
    if loader.dataset is None or loader.shuffle is None:
        return None
    if run.seeded is False and not _has_fixed_samples(run, loader):
        return None
    if loader.shuffle and not _shuffles_alike(run, loader.generator):
        return None  # each rank shuffles with its own seed
    if loader.collate is not None and not _collates_alike(run, run.settle(loader.collate)):
        return None
    if loader.same_part and not loader.own_parts:
        return True  # of whatever dataset
    return True if _same_dataset(run, run.settle(loader.dataset)) else None


def _shuffles_alike(run: Run, generator: GeneratorValue | None) -> bool:
    """Whether a loader certainly shuffles in the same order on all ranks."""
    if generator is None:
        return run.seeded is True
    return is_rank_invariant(run, generator)


def _has_fixed_samples(run: Run, loader: LoaderValue) -> bool:
    """Whether nothing in a loader draws random numbers by the seed of the process."""
    if loader.dataset is None or loader.collate is not None:
        return False
    dataset = run.settle(loader.dataset)
    fixed = isinstance(dataset, LibraryObject) and dataset.name == f"{DATA}.TensorDataset"
    return fixed and (not loader.shuffle or loader.generator is not None)


def _same_dataset(run: Run, value: Value) -> bool:
    if isinstance(value, LibraryObject) and value.name == f"{DATA}.TensorDataset":
        return not value.open and all(is_rank_invariant(run, item) for item in value.args.values())
    if isinstance(value, StateValue):
        return is_same_file(run, value)
    if isinstance(value, Unknown) and value.library.startswith(_LOADED):
        if _MIXES.search(value.origin) and run.seeded is not True:
            return False
        return is_rank_invariant(run, value)
    if not isinstance(value, Instance) or value.attributes_unknown:
        return False
    bases = value.cls.library_bases()
    if bases not in _OWN_DATASETS or value.cls.has_unknown_base():
        return False
    if not all(is_rank_invariant(run, v) for v in value.attributes.values()):
        return False
    fixed = value.attributes.keys()
    if is_code_invariant(run, value.cls, fixed=fixed):
        return True
    invariant = is_code_invariant(run, value.cls, may_draw=True, fixed=fixed)
    return invariant and _draws_same_samples(run, value)


def _draws_same_samples(run: Run, dataset: Instance) -> bool:
    """Whether a dataset certainly draws the same random numbers on all ranks."""
    found = data_probes.probe(run, dataset)
    if found is None or found.may_differ or found.is_out_of_sight:
        return False
    return not found.draws or run.seeded is True


def _collates_alike(run: Run, value: Value) -> bool:
    """Whether a function makes the same batch of the same samples on all ranks."""
    if isinstance(value, Partial) and not _collates_alike(run, run.settle(value.function)):
        return False
    if isinstance(value, Partial | Bound | Instance | Function):
        return is_rank_invariant(run, value)
    library = value.name if isinstance(value, Symbol | LibraryObject) else ""
    library = value.library if isinstance(value, Unknown) else library
    return bool(library) and not _MASKS.search(library) and is_rank_invariant(run, value)
