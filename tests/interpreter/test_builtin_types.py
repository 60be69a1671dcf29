"""`isinstance` of Python's own objects decides a branch; what is unknown is tried both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdplint.interpreter import load
from fsdplint.trace import Sharded

BOTH = {True, False}
TESTS = {
    "isinstance([1], list)": {True},
    "isinstance([1], (tuple, list))": {True},
    "isinstance((1, 2), list)": {False},
    "isinstance({}, dict)": {True},
    "isinstance({}, (list, str))": {False},
    "isinstance({1}, set)": {True},
    "isinstance({}, collections.abc.Mapping)": {True},
    "isinstance([1], collections.abc.Sequence)": {True},
    "isinstance([1], omegaconf.ListConfig)": BOTH,
    "isinstance(None, str)": {False},
    "isinstance('a', (tuple, list))": {False},
    "isinstance('a', str)": BOTH,  # the member of an enum would stand for its value
    "isinstance(Plain(), (tuple, list))": {False},
    "isinstance('a', Plain)": {False},
    "isinstance(None, (Plain, Strategy))": {False},
    "isinstance(1, Strategy)": {False},
    "isinstance('a', Kind)": BOTH,
    "isinstance('a', (Plain, Text))": BOTH,
    "isinstance('a', Open)": BOTH,
    "isinstance(Pair(), tuple)": BOTH,
    "isinstance(Named(), dict)": {True},
    "isinstance(Open(), dict)": BOTH,
    "isinstance(Plain, (tuple, list))": {False},
    "isinstance(nn.Linear(2, 2), dict)": {False},
    "isinstance(read(), dict)": BOTH,
    "isinstance(nn.Linear(2, 2).parameters(), torch.Tensor)": {False},
    "isinstance([1], (torch.Tensor, nn.Parameter))": {False},
    "isinstance(read(), torch.Tensor)": BOTH,
    "2.0 == torch.inf": {False},
    "math.inf != float('inf')": {False},
    "torch.inf > 3": {True},
}


@pytest.mark.parametrize("test", TESTS)
def test_types_of_python_are_known(test: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import abc\nimport collections.abc\nimport dataclasses\nimport enum\nimport math\nimport torch\nimport typing\nimport omegaconf\nfrom torch import nn\n"
        "from torch.distributed.fsdp import fully_shard\nfrom data import Base, read\n"
        "class Plain:\n    pass\n"
        "class Pair(typing.NamedTuple):\n    x: int = 0\n"
        "class Named(dict):\n    pass\n"
        "class Kind(enum.Enum):\n    A = 'a'\n"
        "class Text(str):\n    pass\n"
        "@dataclasses.dataclass\nclass Strategy(abc.ABC):\n    pass\n"
        "class Open(Base):\n    pass\n"
        f"model = nn.Linear(2, 2)\nif {test}:\n    fully_shard(model)\nmodel(read())\n"
    )
    assert {bool(list(trace.of(Sharded))) for trace in load([file]).traces} == TESTS[test]
