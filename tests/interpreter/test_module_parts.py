"""The parts of a model: those of subclasses of containers, and the names of parts."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.trace import Called, GuardKind, Sharded, StateLoaded, StateTaken

CONTAINERS = {
    "sequential": "class Own(nn.Sequential):\n    pass\nmodel = Own(Block(), Block())",
    "sequential by init": "class Own(nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__(Block(), Block())\nmodel = Own()",
    "sequential of a list": "class Own(nn.Sequential):\n    def __init__(self):\n"
    "        blocks = [Block(), Block()]\n        super().__init__(*blocks)\nmodel = Own()",
    "sequential that is filled": "class Own(nn.Sequential):\n    def __init__(self):\n"
    "        super().__init__()\n        self.add_module('one', Block())\n"
    "        self.append(Block())\nmodel = Own()",
    "list": "class Own(nn.ModuleList):\n    def forward(self, x):\n        for block in self:\n"
    "            x = block(x)\n        return x\nmodel = Own([Block(), Block()])",
    "list by init": "class Own(nn.ModuleList):\n    def __init__(self, blocks):\n"
    "        super().__init__(modules=blocks)\n    def forward(self, x):\n"
    "        return self[1](self[0](x))\nmodel = Own([Block(), Block()])",
    "dict": "class Own(nn.ModuleDict):\n    def forward(self, x):\n"
    "        return self['b'](self['a'](x))\nmodel = Own({'a': Block(), 'b': Block()})",
    "of a subclass": "class Parts(nn.Sequential):\n    pass\nclass Own(Parts):\n    def __init__(self):\n"
    "        super().__init__(Block(), Block())\nmodel = Own()",
}


@pytest.mark.parametrize("code", CONTAINERS.values(), ids=CONTAINERS)
def test_the_parts_of_a_containers_subclass_are_known(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, f"{code}\nmodel(torch.ones(1, 8))\n")
    trace = found.traces[0]
    called = [class_of(found, e.module) for e in trace.of(Called)]
    assert called == ["Own", "Block", "Linear", "Block", "Linear"]
    own = next(module for module in trace.modules.values() if module.class_name == "Own")
    assert own.children_known and len(own.children) == 2


UNKNOWN_PARTS = {
    "arguments": "class Own(nn.Sequential):\n    pass\nmodel = Own(*make())",
    "init": "class Own(nn.Sequential):\n    def __init__(self, *layers):\n"
    "        super().__init__(*layers)\nmodel = Own(*make())",
    "a part": "class Own(nn.Sequential):\n    def __init__(self):\n        super().__init__()\n"
    "        self.add_module('a', make())\nmodel = Own()",
    "another base": "class Own(make(), nn.Sequential):\n    pass\nmodel = Own(Block())",
}


@pytest.mark.parametrize("code", UNKNOWN_PARTS.values(), ids=UNKNOWN_PARTS)
def test_a_containers_subclass_may_have_unknown_parts(tmp_path: Path, code: str) -> None:
    found = program(tmp_path, f"from elsewhere import make\n{code}\n")
    modules = found.traces[0].modules.values()
    assert not next(module for module in modules if module.class_name == "Own").children_known


NAMED = """
model = nn.Sequential(OrderedDict([("a", nn.Linear(8, 8)), ("b", nn.Sequential(nn.Linear(8, 8)))]))
net = Net(DEPTH)
for name, module in PARTS:
    if TEST:
        fully_shard(module)
"""


@pytest.mark.parametrize(
    ("parts", "test", "names"),
    [
        ("model.named_modules()", "name", ["Linear", "Sequential", "Linear"]),
        ("model.named_modules()", "not name", ["Sequential"]),
        ("model.named_modules()", 'name.startswith("b")', ["Sequential", "Linear"]),
        ("model.named_modules()", 'name == "b.0"', ["Linear"]),
        ("model.named_children()", 'name == "a"', ["Linear"]),
        ("net.named_children()", 'name == "layers"', ["ModuleList"]),
    ],
)
def test_the_names_of_parts_are_known(
    tmp_path: Path, parts: str, test: str, names: list[str]
) -> None:
    code = NAMED.replace("PARTS", parts).replace("TEST", test).replace("DEPTH", "2")
    found = program(tmp_path, f"from collections import OrderedDict\n{code}")
    sharded = events(found, Sharded)
    assert [class_of(found, e.module) for e in sharded] == names
    assert not any(guard.kind is GuardKind.VARYING for e in sharded for guard in e.guards)


@pytest.mark.parametrize(
    ("above", "parts", "test"),
    [
        ("", "net.layers.named_children()", 'name == "1"'),  # one block stands for several
        ("change(model)", "model.named_modules()", 'name == "a"'),
        ("model.a = checkpoint_wrapper(model.a)", "model.named_modules()", 'name == "b"'),
        ("model = FSDP(model)", "model.named_modules()", 'name == "a"'),
    ],
)
def test_names_of_parts_that_are_not_known(
    tmp_path: Path, above: str, parts: str, test: str
) -> None:
    code = NAMED.replace("PARTS", parts).replace("TEST", test).replace("DEPTH", "int(input())")
    imports = (
        "from collections import OrderedDict\nfrom elsewhere import change\n"
        "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n"
    )
    code = code.replace("\nfor name", f"\n{above}\nfor name")
    found = program(tmp_path, imports + code)
    guards = [[g.kind for g in e.guards] for e in events(found, Sharded)]
    assert guards and all(kinds == [GuardKind.VARYING] for kinds in guards)


READ_FIRST = {
    "a test": "if not hasattr(model.net, 'blocks'):\n    raise TypeError",
    "a number": "print(len(model.net.blocks))",
    "a variable": "blocks = model.net.blocks",
}


@pytest.mark.parametrize("read", READ_FIRST.values(), ids=READ_FIRST)
def test_a_part_that_is_read_before_the_model_is_known(tmp_path: Path, read: str) -> None:
    body = f"import zoo\nmodel = zoo.build()\n{read}\nfully_shard(model)\n"
    body += "for block in model.net.blocks:\n    fully_shard(block)\n"
    assert findings(program(tmp_path, body), "FSDP106")


def test_the_state_of_a_part_of_a_library_model(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModel

        model = AutoModel.from_pretrained("x")
        layer = model.embedding
        state = layer.state_dict()
        fully_shard(layer)
        layer.load_state_dict(state)
    """
    found = program(tmp_path, body)
    (taken,) = events(found, StateTaken)
    (loaded,) = events(found, StateLoaded)
    (sharded,) = events(found, Sharded)
    assert taken.of == loaded.into == sharded.module and loaded.state == taken.state


REPLACED = """
from settings import make


class Tied:
    pass


model = make()
fully_shard(model)
tied = isinstance(model.output, Tied)
if isinstance(model.output, Tied):
    model.output.tied = model.embed
elif isinstance(model.output, nn.Linear):
    model.output = nn.Linear(8, 8)
{test}
    fully_shard(model.output)
"""


@pytest.mark.parametrize(("test", "found"), [("if not tied:", 0), ("if True:", 1)])
def test_a_part_that_a_test_may_have_replaced_may_be_sharded(
    tmp_path: Path, test: str, found: int
) -> None:
    body = REPLACED.format(test=test)
    if found:
        body = body.replace("    model.output = nn.Linear(8, 8)\n", "    print(model)\n")
    assert len(findings(program(tmp_path, body), "FSDP106")) == found
