"""Batch norms in mixed precision: FSDP1 keeps them in float32 if it gets a policy.

It wraps each of them by itself, without mixed precision, casts its inputs to float32 and its output
back, and leaves its buffers alone. With FSDP2, a unit of its own does the same.
"""

from __future__ import annotations

import re
from pathlib import Path

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.migration.context import Migration
from fsdplint.source.source import Source
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
WITH_BATCH_NORM = re.compile(rf"{_TORCHVISION}({_IMAGE_CLASSIFIERS}|{_OTHERS})\w*")


def place(migration: Migration) -> str:
    """Where the program makes batch norms, for a message; "" if it makes none."""
    for source in migration.program.sources.values():
        for node, full in symbols_in(source).items():
            if BATCH_NORM.fullmatch(full) or WITH_BATCH_NORM.fullmatch(full):
                line = source.location(node).line
                return f"`{source.code(node)}` ({Path(source.path).name}:{line})"
    return ""


def are_excluded(migration: Migration) -> bool:
    """Whether FSDP1 may keep batch norms of the program out of its mixed precision."""
    return "MixedPrecision" in migration.names.values() and bool(place(migration))


def class_text(migration: Migration, source: Source, at: cst.CSTNode) -> str:
    """The text of the class of all batch norms."""
    return library_name(migration.rewrite, source, "torch.nn", at) + ".modules.batchnorm._BatchNorm"
