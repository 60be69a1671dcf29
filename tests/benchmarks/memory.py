"""The memory that checking many models in one file takes: bytes of Python objects for each model.

python tests/benchmarks/memory.py [flat|nested] [NUMBER]
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from pathlib import Path

HEAD = "import torch\nfrom torch.distributed.fsdp import fully_shard\n"


def flat(number: int) -> str:
    """Models that have nothing to do with each other, each with its optimizer."""
    return HEAD + "".join(
        f"model{n} = torch.nn.Linear(8, 8)\nfully_shard(model{n})\n"
        f"optimizer{n} = torch.optim.Adam(model{n}.parameters())\n"
        for n in range(number)
    )


def nested(number: int) -> str:
    """Models that each hold the one before."""
    return f"{HEAD}m0 = torch.nn.Linear(8, 8)\n" + "".join(
        f"m{n + 1} = torch.nn.Sequential(m{n})\nfully_shard(m{n + 1})\n" for n in range(number)
    )


KINDS = {"flat": flat, "nested": nested}


def peak(kind: str, number: int) -> int:
    """The bytes that checking such a file takes at most, besides what is there before."""
    from fsdplint.engine.operations import check_files
    from fsdplint.engine.session import Session
    from fsdplint.registry.rules import all_rules

    all_rules()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "models.py")
        file.write_text(KINDS[kind](number))
        tracemalloc.start(1)
        try:
            check_files(Session([file]))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


if __name__ == "__main__":
    kinds = sys.argv[1:2] or list(KINDS)
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    for kind in kinds:
        peak(kind, 1)  # what is imported and made only once
        print(f"{kind}: {peak(kind, number) // number:,} bytes for each of {number} models")
