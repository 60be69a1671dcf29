"""Whether every rank gets the same data: seeds, and datasets that the program builds.

Only certain facts count: a dataset does not if unknown code may have selected a part by rank.
"""

from __future__ import annotations

import builtins
import re

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.ranks import depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import GeneratorValue, LoaderValue, StateValue
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    LibraryObject,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
)
from fsdplint.trace import Loaded, Ranks

DATA = "torch.utils.data"
# Libraries whose functions return the same on every rank for the same arguments.
RANK_INVARIANT_LIBRARIES = {
    "torch", "torchvision", "transformers", "numpy", "pandas", "PIL", "os", "json", "pathlib",
    "builtins", "argparse", "csv", "pickle", "glob", "math", "re", "pyarrow", "h5py", "polars",
    "tokenizers", "tiktoken", "sentencepiece", "cv2", "soundfile", "datasets",
}  # fmt: skip
# Functions and classes that load a dataset, which is the same for all ranks.
_LOADED = ("torchvision.datasets.", "datasets.load_")
_MIXES = re.compile(r"\b(shuffle|train_test_split)\(")  # methods of it that draw random numbers
_OWN_DATASETS = ([f"{DATA}.Dataset"], [f"{DATA}.IterableDataset"])  # the bases of a class
# Words in the code of a dataset that may depend on the rank.
_BY_RANK = re.compile(
    r"rank|world|\bdist\b|distributed|shard|worker|partition|environ|replica|host|process", re.I
)
_RANDOM = re.compile(r"rand|normal|choice|sample|shuffle|seed|time\b|uuid", re.I)
_RANDOM_CODE = re.compile(
    r"rand|normal_?\(|choices?\(|\bsample\(|sampler|shuffle|seed|\btime\b|uuid|bernoulli|multinomial",
    re.I,
)
_MASKS = re.compile(r"LanguageModeling|WholeWord|SOP|noise|mask", re.I)  # collators by chance


def note_seed(run: Run, value: Value | None) -> None:
    """All ranks set a seed: the same one, or each its own (None, or derived from the rank)."""
    if value is None or depends_on_rank(value) or (isinstance(value, Unknown) and value.varying):
        run.seeded = False
    elif run.seeded is None:
        run.seeded = True


@function(f"{DATA}.TensorDataset")
def tensor_dataset(run: Run, name: str, call: Call) -> Value:
    return LibraryObject(name, {str(n): v for n, v in enumerate(call.args)}, call.open)


def same_on_all_ranks(run: Run, loader: LoaderValue) -> bool | None:
    """Whether a pass over a loader gives every rank the same batches; None if unknown."""
    if loader.dataset is None or loader.shuffle is None or run.seeded is False:
        return None
    if loader.shuffle and not _shuffles_alike(run, loader.generator):
        return None  # each rank shuffles with its own seed
    if loader.collate is not None and not _collates_alike(run, run.settle(loader.collate)):
        return None
    return True if _same_dataset(run, run.settle(loader.dataset)) else None


def _shuffles_alike(run: Run, generator: GeneratorValue | None) -> bool:
    """Whether a loader certainly shuffles in the same order on all ranks."""
    if generator is None:
        return run.seeded is True
    seed = run.settle(generator.seed) if generator.seed is not None else None
    return isinstance(seed, Const)


def _same_dataset(run: Run, value: Value) -> bool:
    if isinstance(value, LibraryObject) and value.name == f"{DATA}.TensorDataset":
        return not value.open and all(_rank_invariant(run, item) for item in value.args.values())
    if isinstance(value, StateValue):
        return _is_same_file(run, value)
    if isinstance(value, Unknown) and value.library.startswith(_LOADED):
        if _MIXES.search(value.origin) and run.seeded is not True:
            return False
        return _rank_invariant(run, value)
    if not isinstance(value, Instance) or value.attributes_unknown:
        return False
    bases = value.cls.library_bases()
    if bases not in _OWN_DATASETS or value.cls.has_unknown_base():
        return False
    return _rank_invariant_code(run, value.cls) and all(
        _rank_invariant(run, v) for v in value.attributes.values()
    )


def _is_same_file(run: Run, value: StateValue) -> bool:
    """Whether all ranks have read the same file by `torch.load`."""
    return value.api == "torch.load" and any(
        event.state == value.id and not event.per_rank and event.ranks is Ranks.ALL
        for event in run.trace.of(Loaded)
    )


def _collates_alike(run: Run, value: Value) -> bool:
    """Whether a function makes the same batch of the same samples on all ranks."""
    if isinstance(value, Partial):
        given = [*value.args, *value.kwargs.values()]
        return _collates_alike(run, value.function) and all(
            _rank_invariant(run, one) for one in given
        )
    if isinstance(value, Bound) and isinstance(value.receiver, Instance):
        return _collates_alike(run, value.receiver)
    if isinstance(value, Instance):
        known = not (value.attributes_unknown or value.cls.has_unknown_base())
        known = known and not value.cls.library_bases() and _rank_invariant_code(run, value.cls)
        return known and all(_rank_invariant(run, one) for one in value.attributes.values())
    if isinstance(value, Function):
        return _is_invariant_text(value) and all(
            _rank_invariant_callee(run, value, name) for name in _called_names(value.node)
        )
    library = value.name if isinstance(value, Symbol | LibraryObject) else ""
    library = value.library if isinstance(value, Unknown) else library
    return bool(library) and not _MASKS.search(library) and _rank_invariant(run, value)


def _is_invariant_text(value: Function | Class) -> bool:
    """Whether the words in the code of a value do not depend on the rank or on random numbers."""
    text = value.site.source.tree.code_for_node(value.node)
    return not (_BY_RANK.search(text) or _RANDOM_CODE.search(text))


def _rank_invariant(run: Run, value: Value, depth: int = 0) -> bool:
    """Whether a value is the same on all ranks."""
    value = run.settle(value)
    if depth > 4:
        return False
    if isinstance(value, Const | Function | Class):
        return True
    if isinstance(value, Symbol):
        return _is_invariant_library(value.name)
    if isinstance(value, StateValue):
        return _is_same_file(run, value)
    if isinstance(value, Sequence):
        return all(_rank_invariant(run, item, depth + 1) for item in value.items)
    if isinstance(value, Dict):
        return all(_rank_invariant(run, item, depth + 1) for item in value.items.values())
    if isinstance(value, LibraryObject):
        return all(_rank_invariant(run, item, depth + 1) for item in value.args.values())
    if not isinstance(value, Unknown) or value.part_of is not None:
        return False
    if value.by_rank or value.by_process:
        return False
    if "parse_args()" in value.origin:
        return True
    if not _is_invariant_library(value.library):
        return False
    if _RANDOM.search(value.library):
        return value.library.startswith("torch.") and run.seeded is True
    return True


def _is_invariant_library(name: str) -> bool:
    """Whether the dotted name of a library's function, which no rank is in, is known."""
    return name.partition(".")[0] in RANK_INVARIANT_LIBRARIES and not _BY_RANK.search(name)


def _rank_invariant_code(run: Run, cls: Class) -> bool:
    """Whether the words and calls in the code of a dataset do not depend on the rank."""
    for one in cls.mro():
        text = one.site.source.tree.code_for_node(one.node)
        if _BY_RANK.search(text):
            return False
        for part in one.node.body.body:
            if isinstance(part, cst.FunctionDef) and _RANDOM_CODE.search(
                one.site.source.tree.code_for_node(part)
            ):
                if part.name.value != "__init__" or not run.seeded:
                    return False
        for name in _called_names(one.node):
            if not _rank_invariant_callee(run, one, name):
                return False
    return True


def _called_names(node: cst.CSTNode) -> set[str]:
    """The called names in some code; of dotted names, the first part."""
    found: set[str] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, cst.Call):
            function: cst.CSTNode = current.func
            while isinstance(function, cst.Attribute | cst.Call | cst.Subscript):
                function = function.func if isinstance(function, cst.Call) else function.value
            if isinstance(function, cst.Name):
                found.add(function.value)
        stack.extend(current.children)
    return found


def _rank_invariant_callee(run: Run, code: Class | Function, name: str) -> bool:
    value = code.scope.lookup(name)
    if value is None:
        # Local names hold what __init__ got or what the class made: its attributes are looked at.
        return True
    value = run.settle(value)
    if isinstance(value, Symbol):
        return value.name.partition(".")[0] in RANK_INVARIANT_LIBRARIES
    if isinstance(value, Function | Class):
        return _is_invariant_text(value)
    return isinstance(value, Const) or hasattr(builtins, name)
