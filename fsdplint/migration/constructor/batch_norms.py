"""Batch norms in mixed precision: FSDP1 keeps them in float32 if it gets a policy.

It wraps each of them by itself, without mixed precision, casts its inputs to float32 and its output
back, and leaves its buffers alone. With FSDP2, a unit of its own does the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.qualified_names import symbols_in

BATCH_NORM = re.compile(r"torch\.nn\.(SyncBatchNorm|(Lazy)?BatchNorm[123]d)")
# The models of torchvision that have batch norms. The first kind has no other buffers.
_TORCHVISION = r"torchvision\.models\.(\w+\.)*"
_IMAGE_CLASSIFIERS = (
    r"(wide_)?resnet|resnext|densenet|mobilenet|mnasnet|shufflenet|efficientnet|googlenet|"
    r"inception|regnet|vgg\d+_bn"
)
_OTHERS = (
    r"maxvit|deeplabv3|fcn_|lraspp|fasterrcnn|maskrcnn|keypointrcnn|retinanet|ssdlite|r3d|mc3|"
    r"r2plus1d|s3d"
)
IMAGE_CLASSIFIER = re.compile(rf"{_TORCHVISION}({_IMAGE_CLASSIFIERS})\w*", re.IGNORECASE)
_BASE = "torch.nn._BatchNorm"  # the canonical name
WITH_BATCH_NORM = re.compile(rf"{_TORCHVISION}({_IMAGE_CLASSIFIERS}|{_OTHERS})\w*")


def place(migration: Migration) -> str:
    """Where the program makes batch norms, for a message; "" if it makes none."""
    for source in migration.program.sources.values():
        for node, full in symbols_in(source).items():
            if BATCH_NORM.fullmatch(full) or WITH_BATCH_NORM.fullmatch(full):
                line = source.location(node).line
                return f"`{source.code(node)}` ({Path(source.path).name}:{line})"
    return ""


def are_all(migration: Migration, classes: cst.BaseExpression) -> bool:
    """Whether the classes that FSDP1 gets for its exclusion exclude the same modules as its default,
    which is every batch norm."""
    if not isinstance(classes, cst.Tuple | cst.List | cst.Set):
        return is_constant(classes, "None") and not place(migration)
    given = {migration.symbol(one.value) for one in classes.elements}
    if not all(BATCH_NORM.fullmatch(one) or one == _BASE for one in given):
        return False
    made = {full for source in migration.program.sources.values() for full in _made(source)}
    return _BASE in given or made <= given


def _made(source: Source) -> Iterator[str]:
    """The names of the batch norms, and of the models with batch norms, that a file makes."""
    for full in symbols_in(source).values():
        if BATCH_NORM.fullmatch(full) or WITH_BATCH_NORM.fullmatch(full):
            yield full


def are_excluded(migration: Migration) -> bool:
    """Whether FSDP1 may keep batch norms of the program out of its mixed precision."""
    return "MixedPrecision" in migration.names.values() and bool(place(migration))


def class_text(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The text of the class of all batch norms."""
    return library_name(migration.rewrite, source, "torch.nn", at) + ".modules.batchnorm._BatchNorm"
