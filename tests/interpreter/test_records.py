"""Objects with fields, functions that read from objects, and other tools of Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import class_of, events, findings, program

from fsdplint.trace import Called, Escaped, OptimizerBuilt, Sharded, Wrapped

IMPORTS = """
import collections, enum, functools, operator, types
from typing import NamedTuple

class Parts(NamedTuple):
    model: nn.Module
    number: int = 3

Pair = collections.namedtuple("Pair", "first second", defaults=[4])

class Mode(enum.Enum):
    FULL = "full"
    NONE = (1, "none")

model = Net()
"""
SHARDED = {
    "field": "parts = Parts(model)\nfully_shard(parts.model)",
    "element": "fully_shard(Parts(model=model)[0])",
    "unpacking": "one, two = Parts(model, 2)\nfully_shard(one)",
    "star": "def use(one, two):\n    fully_shard(one)\nuse(*Parts(model, 2))",
    "replaced": "fully_shard(Parts(None)._replace(model=model).model)",
    "as a dict": 'fully_shard(Parts(model)._asdict()["model"])',
    "default": "if Parts(model).number == 3:\n    fully_shard(model)",
    "namedtuple": "fully_shard(Pair(model).first)",
    "default of namedtuple": "if Pair(model).second == 4:\n    fully_shard(model)",
    "namespace": "fully_shard(types.SimpleNamespace(model=model).model)",
    "methodcaller": "class Trainer:\n    def run(self, one):\n        fully_shard(one)\n"
    'operator.methodcaller("run", model)(Trainer())',
    "attrgetter": 'fully_shard(operator.attrgetter("of.model")('
    "types.SimpleNamespace(of=types.SimpleNamespace(model=model))))",
    "two attributes": 'one, two = operator.attrgetter("model", "number")(Parts(model))\n'
    "fully_shard(one)",
    "itemgetter": "fully_shard(operator.itemgetter(1)([None, model]))",
    "reduce": 'fully_shard(functools.reduce(getattr, "of.model".split("."), '
    "types.SimpleNamespace(of=types.SimpleNamespace(model=model))))",
    "list by index": "parts = [None] * 3\nparts[1] = model\nfully_shard(parts[1])",
    "staticmethod": "class Api:\n    shard = staticmethod(fully_shard)\nApi().shard(model)",
    "staticmethod of a function": "def shard(one):\n    fully_shard(one)\n"
    "class Api:\n    run = staticmethod(shard)\nApi().run(model)",
    "dict comprehension": 'parts = {name: model for name in ("a", "b")}\nfully_shard(parts["b"])',
    "f-string": 'last = "del"\nfully_shard(dict(model=model)[f"mo{last}"])',
    "enum": 'if Mode.FULL.value == "full":\n    fully_shard(model)',
    "element of an enum": 'if Mode.NONE.value[1] == "none":\n    fully_shard(model)',
    "member by value": 'if Mode("full") == Mode.FULL:\n    fully_shard(model)',
}


@pytest.mark.parametrize("body", SHARDED.values(), ids=SHARDED)
def test_the_model_is_followed(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, IMPORTS + body + "\ndist.barrier()\n")
    assert len(found.traces) == 1
    event = next(found.traces[0].of(Sharded))
    assert class_of(found, event.module) == "Net"
    assert not event.guards


LOST = {
    "open": "fully_shard(Parts(**options).model)",
    "open namespace": "fully_shard(types.SimpleNamespace(**options).model)",
    "open caller": 'operator.methodcaller("shard", *options)(model)',
    "unknown index": "parts = [None] * number\nparts[number] = 3\nfully_shard(parts[1])",
}


@pytest.mark.parametrize("body", LOST.values(), ids=LOST)
def test_what_is_unknown_stays_unknown(tmp_path: Path, body: str) -> None:
    found = program(tmp_path, IMPORTS + body + "\ndist.barrier()\n")
    classes = {class_of(found, event.module) for event in found.traces[0].of(Sharded)}
    assert "Net" not in classes


def test_a_namespace_that_escapes_takes_its_models_along(tmp_path: Path) -> None:
    found = program(tmp_path, IMPORTS + "tools.use(types.SimpleNamespace(model=model))\n")
    assert [class_of(found, event.module) for event in events(found, Escaped)] == ["Net"]


def test_the_call_of_a_methodcaller_is_one_of_the_model(tmp_path: Path) -> None:
    found = program(tmp_path, IMPORTS + 'operator.methodcaller("forward", 1)(model)\n')
    called = next(found.traces[0].of(Called))
    assert class_of(found, called.module) == "Net" and called.via == "forward"


def test_a_dict_comprehension_keeps_its_keys(tmp_path: Path) -> None:
    body = (
        "parts = {name: part for name, part in [('one', model.head), ('two', model)]}\n"
        "optimizer = torch.optim.SGD(parts['two'].parameters(), lr=0.1)\nFSDP(parts['one'])\n"
    )
    found = program(tmp_path, IMPORTS + body)
    assert len(list(found.traces[0].of(Wrapped))) == 1
    built = next(found.traces[0].of(OptimizerBuilt))
    assert [class_of(found, module) for module in built.modules] == ["Net"]


PYDANTIC = """
import json, sys
from pydantic import BaseModel, Field

class Base(BaseModel):
    seed: int = 0

class Optim(Base):
    lr: float = Field(0.1, gt=0)

    def build(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.lr)

class Settings(Base):
    whole: bool = Field(default=False)
    probe: int | None = None
    optim: Optim = Optim()

"""
MADE = {
    "from data": "settings = Settings.model_validate(json.load(open(sys.argv[1])))",
    "from text": "settings = Settings.model_validate_json(open(sys.argv[1]).read())",
    "old name": "settings = Settings.parse_file(sys.argv[1])",
    "from the environment": "settings = Settings()",
    "from arguments": "settings = Settings(**json.load(open(sys.argv[1])))",
}


@pytest.mark.parametrize("made", MADE)
def test_settings_of_pydantic(tmp_path: Path, made: str) -> None:
    """Its fields are settings, and the objects in them have their methods."""
    body = f"""{PYDANTIC}
{MADE[made]}
model = nn.Linear(8, 8)
optimizer = settings.optim.build(model)
if settings.whole:
    fully_shard(model)
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""
    (finding,) = findings(program(tmp_path, body), "FSDP103")
    assert [(guard.text, guard.holds) for guard in finding.configuration] == [
        ("settings.whole", True)
    ]


NONE_TEST = """\
from dataclasses import dataclass
from typing import Optional

@dataclass
class Settings:
    width: {annotation} = {default}

settings = Settings({given})
model = Net()
if settings.width is None:
    fully_shard(model.head)
"""


@pytest.mark.parametrize("annotation", ["int", "float", "str", "bool"])
def test_a_field_of_a_plain_type_is_not_none(tmp_path: Path, annotation: str) -> None:
    body = NONE_TEST.format(annotation=annotation, default=8, given="")
    assert not any(events(program(tmp_path, body), Sharded))


@pytest.mark.parametrize(
    "annotation, default, given",
    [
        ("Optional[int]", 8, ""),
        ("int | None", 8, ""),
        ("int", None, ""),
        ("int", 8, "**json.load(open('settings.json'))"),
        ("int", 8, "width=None"),
        ("object", 8, ""),
    ],
)
def test_a_field_that_may_be_none(
    tmp_path: Path, annotation: str, default: object, given: str
) -> None:
    body = NONE_TEST.format(annotation=annotation, default=default, given=given)
    assert any(events(program(tmp_path, f"import json\n{body}"), Sharded))


def test_an_assertion_that_a_field_is_not_none_holds(tmp_path: Path) -> None:
    """A test of the field elsewhere does not end the program there."""
    body = """\
    from dataclasses import dataclass

    @dataclass
    class Settings:
        width: int = 8

    settings = Settings()
    if settings.width is not None:
        print(settings.width)
    test = settings.width is not None
    assert test
    fully_shard(Net())
    """
    found = program(tmp_path, body)
    assert all(any(trace.of(Sharded)) for trace in found.traces)
