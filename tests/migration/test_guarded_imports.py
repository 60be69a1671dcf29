"""Imports of FSDP1 in a `try` whose handler binds their names to None."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated

MODEL = "model = FSDP(Net(), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
IMPORT = "    from torch.distributed.fsdp import ShardingStrategy\n"


def test_a_try_that_is_left_without_statements_goes(tmp_path: Path) -> None:
    text = migrated(
        tmp_path, f"try:\n{IMPORT}except ImportError:\n    ShardingStrategy = None\n{MODEL}"
    )
    assert "try:" not in text and "ShardingStrategy" not in text


@pytest.mark.parametrize(
    "handler, left",
    [
        ("    ShardingStrategy = None\n    print('no FSDP')\n", "    print('no FSDP')\n"),
        ("    print('no FSDP')\n    ShardingStrategy = None\n", "    print('no FSDP')\n"),
    ],
)
def test_other_statements_of_the_handler_stay(tmp_path: Path, handler: str, left: str) -> None:
    body = f"try:\n    import apex\n{IMPORT}except ImportError:\n{handler}{MODEL}"
    text = migrated(tmp_path, body)
    assert "    import apex\n" in text and f"except ImportError:\n{left}" in text
    assert "ShardingStrategy" not in text


def test_another_import_of_the_try_keeps_its_stand_in(tmp_path: Path) -> None:
    handler = (
        "except ImportError:\n    apex = ShardingStrategy2 = None\n    ShardingStrategy = None\n"
    )
    text = migrated(tmp_path, f"try:\n    import apex\n{IMPORT}{handler}{MODEL}")
    assert "    apex = ShardingStrategy2 = None\n" in text
    assert "    ShardingStrategy = None" not in text


GUARDED = """
import torch.nn as nn

try:
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapper
except ImportError:
    Wrapper = None


def is_sharded(model):
    {0}


model = Wrapper(nn.Linear(4, 4))
print(is_sharded(model))
"""


@pytest.mark.parametrize(
    ("test", "after"),
    [
        (
            "return Wrapper is not None and isinstance(model, Wrapper)",
            "return FSDPModule is not None and isinstance(model, FSDPModule)",
        ),
        (
            "return bool(Wrapper and isinstance(model, Wrapper))",
            "return bool(FSDPModule and isinstance(model, FSDPModule))",
        ),
        (
            "if not Wrapper:\n        return False\n    return isinstance(model, Wrapper)",
            "if not FSDPModule:\n        return False\n    return isinstance(model, FSDPModule)",
        ),
    ],
)
def test_a_test_of_the_import_asks_for_the_new_name(tmp_path: Path, test: str, after: str) -> None:
    text = migrated(tmp_path, GUARDED.replace("{0}", test))
    assert after in text
    assert "except ImportError:\n    FSDPModule = None\n" in text
    assert "Wrapper" not in text
