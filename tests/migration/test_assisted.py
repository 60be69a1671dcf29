"""Assisted migrations: what blocks raises, everything else is rewritten."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import fixture_runs
import pytest
from assisted_forms import assisted_text, assisted_texts, check_assisted, names_left
from forms import HEAD
from test_blocked import BLOCKED

FOLDER = fixture_runs.FIXTURES / "fsdp1_blocked"
UNKNOWN = "FSDP(Net(), auto_wrap_policy=os.policy)"  # a policy that nothing shows


def rewritten(tmp_path: Path, body: str, head: str = HEAD) -> str:
    """What the lines below the head become."""
    path = tmp_path / "train.py"
    path.write_text(head + textwrap.dedent(body), encoding="utf-8")
    _, text = check_assisted(path)
    return text[text.index('dist.init_process_group("nccl")\n') + 32 :]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_a_blocked_program_is_rewritten_in_part(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(FOLDER / name, tmp_path))
    places, _ = check_assisted(path)
    for code, reason in BLOCKED[name].items():
        assert any(code in "\n".join(x.old) and reason in x.reason for x in places)


def test_the_other_uses_are_rewritten(tmp_path: Path) -> None:
    body = (
        f"model = {UNKNOWN}\nmodel(torch.ones(1, 8)).sum().backward()\nmodel.clip_grad_norm_(1.0)\n"
    )
    text = rewritten(tmp_path, body)
    assert f"#     model = {UNKNOWN}\nraise NotImplementedError(" in text
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)" in text


def test_clipping_on_the_class_is_rewritten(tmp_path: Path) -> None:
    body = """
    model = FSDP(Net())
    model.register_comm_hook(None, print)
    model(torch.ones(1, 8)).sum().backward()
    FSDP.clip_grad_norm_(model, max_norm=1.0)
    """
    text = rewritten(tmp_path, body)
    assert "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)" in text


def test_imports_that_only_a_comment_uses_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + f"import operator\nmodel = {UNKNOWN.replace('os', 'operator')}\n")
    _, text = assisted_text(path)
    assert "import operator" not in text and "torch.distributed.fsdp" not in text


def test_the_rest_of_a_block_stays(tmp_path: Path) -> None:
    body = f"""
        def build(kind):
            if kind:
                model = {UNKNOWN}
            else:
                model = Net()
            return model

        build(os.environ["KIND"])
    """
    text = rewritten(tmp_path, body)
    assert f"\n        #     model = {UNKNOWN}\n        raise NotImplementedError(" in text
    assert "\n    else:\n        model = Net()\n    return model\n" in text


@pytest.mark.parametrize(
    "line",
    [
        f"first = 1; model = {UNKNOWN}; last = 2",
        f"if os.environ: model = {UNKNOWN}",
        f"models = [{UNKNOWN} for _ in range(2)]",
        f"model = (lambda: {UNKNOWN})()",
        f"if {UNKNOWN} is None:\n    print(1)\nelse:\n    print(2)",
        f"if not os.environ:\n    pass\nelif {UNKNOWN} is None:\n    print(1)",
        f"for part in {UNKNOWN}.modules():\n    print(part)",
        f"while {UNKNOWN} is None:\n    print(1)",
        f"with torch.no_grad(), {UNKNOWN} as x:\n    print(x)",
        f"assert {UNKNOWN}  # checked",
        f"print(\n    {UNKNOWN},  # a comment\n    '''\ntext\n''',\n)",
    ],
)
def test_the_statement_around_an_expression_raises(tmp_path: Path, line: str) -> None:
    assert "raise NotImplementedError" in rewritten(tmp_path, line + "\n")


def test_a_class_raises_when_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + "class Own(FSDP):\n    size = 1\n\nnumber = 1\nmodel = Own(Net())\n")
    text = rewritten(tmp_path, "class Own(FSDP):\n    size = 1\n\nnumber = 1\n")
    scope: dict[str, object] = {}
    exec(text, scope)
    assert scope["number"] == 1
    with pytest.raises(NotImplementedError, match=r"fsdplint: .*FSDP201-subclass"):
        scope["Own"](1)  # type: ignore[operator]


def test_a_function_raises_when_it_is_called(tmp_path: Path) -> None:
    body = f"""
        class Trainer:
            @property
            def size(self, model={UNKNOWN}):
                return 1

            @staticmethod
            async def load(model={UNKNOWN}):
                return model
    """
    text = rewritten(tmp_path, body)
    assert "    @property\n    def size(*args, **kwargs):\n        raise" in text
    assert "    @staticmethod\n    async def load(*args, **kwargs):\n        raise" in text


def test_an_attribute_of_a_class_makes_its_objects_raise(tmp_path: Path) -> None:
    text = rewritten(tmp_path, f"class Trainer:\n    model = {UNKNOWN}\n")
    assert "class Trainer:\n    def __init__(self, *args, **kwargs):\n        raise" in text


def test_statements_in_a_row_raise_once(tmp_path: Path) -> None:
    body = """
        def whole(model):
            settings = FSDP.get_state_dict_type(model)
            # the same again
            other = FSDP.get_state_dict_type(model)  # and again
            return settings, other

        whole(FSDP(Net()))
    """
    text = rewritten(tmp_path, body)
    assert text.count("raise NotImplementedError") == 1
    assert "#     # the same again\n    #     other = FSDP" in text
    assert "fully_shard(Net())" in text


def test_the_indentation_and_the_newlines_of_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    body = f"def build():\n\tif True:\n\t\treturn {UNKNOWN}\n\n\nbuild()\n"
    path.write_bytes((HEAD + body).replace("    ", "\t").replace("\n", "\r\n").encode())
    plan, text = assisted_text(path)
    assert not plan.blockers
    assert "\n" not in text.replace("\r\n", "")
    assert f"\t\t#     return {UNKNOWN}\r\n\t\traise NotImplementedError(" in text


def test_code_in_a_block_that_is_unwrapped(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model._handle
            state = model.state_dict()
    """
    text = rewritten(tmp_path, body)
    assert "#     model._handle\nraise NotImplementedError(" in text
    assert "\nstate = get_model_state_dict(" in text


def test_a_module_that_others_import_raises_where_its_value_is_read(tmp_path: Path) -> None:
    library, train = tmp_path / "library.py", tmp_path / "train.py"
    head = "import os\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    library.write_text(
        head + "from torch.distributed.fsdp import MixedPrecision\n"
        "PRECISION = MixedPrecision(**os.options)\n\n\ndef build(model):\n"
        "    return FSDP(model, mixed_precision=PRECISION)\n"
    )
    train.write_text(
        "import torch\nfrom library import build\nmodel = build(torch.nn.Linear(1, 1))\n"
    )
    plans, texts = assisted_texts(train)
    assert not [one for plan in plans for one in plan.blockers]
    text = texts[str(library)]
    assert not names_left(library, text)
    exec(text, scope := {})
    with pytest.raises(NotImplementedError):
        scope["build"](None)


def test_states_of_an_undecided_type_raise(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net())
        FSDP.set_state_dict_type(model, os.kind)
        state = model.state_dict()
    """
    text = rewritten(tmp_path, body)
    assert "#     state = model.state_dict()\n" in text


def test_a_program_that_is_too_large_is_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.migration.planner.MAX_USES", 0)
    path = tmp_path / "train.py"
    path.write_text(HEAD + f"model = {UNKNOWN}\n")
    plan, text = assisted_text(path)
    assert [one.code for one in plan.blockers] == ["FSDP201-too-many-uses"]
    assert text == path.read_text()


# Names of FSDP1 that stay --------------------------------------------------------------------------

PARTS = """
def choose(kind):
    layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={{Block}})
    {between}
    return functools.partial(_or_policy, policies=[layers, os.other(kind)])


model = FSDP(Net(), auto_wrap_policy=choose(os.environ["KIND"]))
"""
UNCALLED = """
from torch.distributed.fsdp import _runtime_utils


def patch():
    _runtime_utils._lazy_init = print


model = FSDP(Net(), auto_wrap_policy=os.policy)
"""


def test_a_part_of_a_policy_depends_on_the_decision_about_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + PARTS.format(between="print(kind)"))
    places, text = check_assisted(path)
    assert "FSDP201-depends-on-decision" in {one.blocker for one in places}
    (part,) = (one for one in places if any("layers = " in line for line in one.old))
    assert "return functools.partial(_or_policy" in part.reason
    assert not names_left(path, text)


def test_a_part_of_a_policy_that_other_code_calls_stays(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + PARTS.format(between="print(layers(Net(), True, 1))"))
    _, text = check_assisted(path)
    name = "torch.distributed.fsdp.wrap.transformer_auto_wrap_policy"
    assert names_left(path, text) == {name}


def test_a_function_that_nothing_calls_stays(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + UNCALLED)
    _, text = check_assisted(path)
    assert "def patch():\n    _runtime_utils._lazy_init = print\n" in text


# After the decision -------------------------------------------------------------------------------

DECIDED = {
    "batch_norm.py": "for block in (net[1], net[2]):\n    fully_shard(block)\nmodel = fully_shard(net)",
    "class_argument.py": "model = parallelise(net, fully_shard)",
    "comm_hook.py": "pass",
    "custom_policy.py": "model = FSDP(Model(), auto_wrap_policy=ModuleWrapPolicy({Expert, Mixture}))",
    "subclass.py": "class ProjectFSDP(nn.Module):\n    pass",
}


@pytest.mark.parametrize("name", DECIDED)
def test_a_decision_completes_the_migration(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(FOLDER / name, tmp_path))
    (place,), text = check_assisted(path)
    path.write_text(with_code(text, place.line, DECIDED[name]))
    plans, texts = assisted_texts(path)
    assert not [one for plan in plans for one in plan.blockers]
    final = texts[str(path)]
    compile(final, str(path), "exec")
    assert "raise NotImplementedError" not in final and not names_left(path, final)
    if name == "custom_policy.py":
        assert "isinstance(module, (Expert, Mixture))" in final


def with_code(text: str, line: int, code: str) -> str:
    """The text with some code in the place of the comment and the statement that raise in a line."""
    lines = text.splitlines()
    start = line - 1
    while not lines[start - 1].strip().startswith("#"):
        start -= 1
    while lines[start - 1].strip().startswith("#"):
        start -= 1
    end = line
    while end < len(lines) and not compiles("\n".join(lines[line - 1 : end])):
        end += 1
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    imports = (
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard\n"
        "from torch.distributed.fsdp.wrap import ModuleWrapPolicy"
    )
    first = next(number for number, one in enumerate(lines) if one.startswith("import torch"))
    new = textwrap.indent(code, indent).splitlines()
    whole = [*lines[:first], imports, *lines[first:start], *new, *lines[end:]]
    return "\n".join(whole) + "\n"


def compiles(code: str) -> bool:
    try:
        compile(textwrap.dedent(code), "<code>", "exec")
    except SyntaxError:
        return False
    return True
