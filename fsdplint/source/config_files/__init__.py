"""Files of settings (YAML, JSON) in which a framework is told to use FSDP.

Nothing here imports a parser: which files matter is judged on their bytes.
"""

from __future__ import annotations

import re
from pathlib import Path

from fsdplint.source import reading

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 64 * 1024  # of a file that was found in a folder: settings are short, data is not

# The configuration of `accelerate launch`: `distributed_type: FSDP`, also with quotes.
_ACCELERATE = re.compile(rb"""distributed_type["']?[ \t]*:[ \t]*["']?FSDP\b""")


def is_config(path: Path) -> bool:
    """Whether a file is one of settings, and no Python file, by its name."""
    return path.suffix.lower() in SUFFIXES


def matters(data: bytes) -> bool:
    """Whether a file of settings can be one that is about FSDP."""
    return _ACCELERATE.search(data) is not None


def found_matters(path: Path) -> bool:
    """Whether a file of settings that was found in a folder can be one that is about FSDP."""
    try:
        return matters(reading.read(path, MAX_BYTES))
    except OSError:
        return False
