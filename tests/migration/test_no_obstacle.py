"""Code that has to do with FSDP1 and is no obstacle to a migration."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

from fsdplint.config.options import Options
from fsdplint.config.target_torch import explicit
from fsdplint.engine.check import check
from fsdplint.interpreter import load
from fsdplint.migration.blockers.program import WRAPPER_ASKED
from fsdplint.migration.names import fsdp1_name
from fsdplint.migration.planner import plans_of
from fsdplint.registry.rules import all_rules
from fsdplint.source.source import Source
from fsdplint.syntax.qualified_names import canonical, symbols_in

FSDP2_INSIDE = """
from torch.distributed._composable.fsdp import _fsdp_state
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
head = fully_shard(nn.Linear(8, 8))
print(FSDPParamGroup, _fsdp_collectives.foreach_reduce, _fsdp_state.FSDPState)
model = FSDP(Net())
"""
FALLBACK = """
try:
    from torch.distributed.fsdp._runtime_utils import _lazy_init
    from torch.distributed.fsdp.wrap import CustomPolicy
except ImportError:
    CustomPolicy = _lazy_init = None
if FSDP is None:
    raise RuntimeError("this torch has no FSDP")
model = FSDP(Net())
"""
STAR = HEAD.replace("import functools\n", "import functools\nfrom {0} import *\n")


@pytest.mark.parametrize(
    "module",
    [
        "torch.distributed.fsdp._fully_shard",
        "torch.distributed.fsdp._fully_shard._fsdp_param",
        "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup",
        "torch.distributed.fsdp._fully_shard._fsdp_api.ReduceScatter",
        "torch.distributed.fsdp._fully_shard._fsdp_common.TrainingState.IDLE",
        "torch.distributed._composable.fsdp._fsdp_param",
        "torch.distributed._composable.fsdp.fully_shard.FSDPModule",
    ],
)
def test_private_modules_of_fsdp2_are_its_own(module: str) -> None:
    assert fsdp1_name(canonical(module)) is None


def test_uses_of_the_private_modules_of_fsdp2_stay(tmp_path: Path) -> None:
    assert "print(FSDPParamGroup, " in migrated(tmp_path, FSDP2_INSIDE)


def test_a_name_that_stands_in_for_a_failed_import_is_no_use(tmp_path: Path) -> None:
    text = migrated(tmp_path, FALLBACK)
    assert "model = fully_shard(Net())" in text and "if FSDP is None:" in text


def test_a_strategy_that_nothing_gives_is_the_default(tmp_path: Path) -> None:
    body = "def shard(net, strategy=None):\n    return FSDP(net, sharding_strategy=strategy)\n\n\n"
    assert "    return fully_shard(net)\n" in migrated(tmp_path, body + "model = shard(Net())\n")


@pytest.mark.parametrize(
    "module",
    ["torch.distributed.fsdp", "torch.distributed.fsdp.wrap", "project.distributed.fsdp"],
)
def test_import_star_hides_nothing_where_its_names_are_known(tmp_path: Path, module: str) -> None:
    found, text = plan(tmp_path, "model = FSDP(Net())", STAR.format(module))
    assert not found.blockers and "model = fully_shard(Net())" in text


def test_import_star_of_a_private_module_blocks(tmp_path: Path) -> None:
    module = "torch.distributed.fsdp._common_utils"
    found, _ = plan(tmp_path, "model = FSDP(Net())", STAR.format(module))
    assert [b.reason for b in found.blockers] == [
        f"`import *` hides which names of `{module}` are used"
    ]


def test_an_import_that_nothing_uses_is_no_use(tmp_path: Path) -> None:
    (tmp_path / "imports.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType\n"
        "from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles\n"
    )
    assert plans_of(load([tmp_path / "imports.py"])) == []


SAMPLE = """\
import contextlib
import torch


def run(model, data):
    no_sync = getattr(model, "no_sync", contextlib.nullcontext)
    with torch.{mode}(), no_sync():
        return model(data){end}
"""


@pytest.mark.parametrize(
    ("mode", "end", "found"), [("no_grad", "", False), ("enable_grad", ".sum().backward()", True)]
)
def test_no_sync_with_a_default_matters_to_a_backward(
    tmp_path: Path, mode: str, end: str, found: bool
) -> None:
    train = HEAD + "import sample\n\nmodel = FSDP(Net())\nsample.run(model, torch.ones(2, 8))\n"
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "sample.py").write_text(SAMPLE.format(mode=mode, end=end))
    program = load([tmp_path / "train.py", tmp_path / "sample.py"])
    (rule,) = [rule() for rule in all_rules() if rule.code == "FSDP205"]
    assert [one.blocker for one in check(program, [rule])] == [WRAPPER_ASKED.message] * found


MOVED = """
if os.environ.get("OLD"):
    from torch.distributed.fsdp.flat_param import FlatParamHandle
else:
    from torch.distributed.fsdp._flat_param import FlatParamHandle
print(FlatParamHandle)
model = FSDP(Net())
"""


def test_two_homes_of_a_name_of_fsdp1_are_no_two_libraries(tmp_path: Path) -> None:
    found, _ = plan(tmp_path, MOVED)
    assert [b.reason for b in found.blockers] == [
        "`_flat_param.FlatParamHandle` is internal to FSDP1, and FSDP2 does not have it"
    ]


def test_the_wrapper_of_another_library_is_not_fsdp1(tmp_path: Path) -> None:
    (tmp_path / "hook.py").write_text(
        "from fairscale.nn import FullyShardedDataParallel\n\n\n"
        "def inner(module):\n    if isinstance(module, FullyShardedDataParallel):\n"
        "        return module._fsdp_wrapped_module\n    return module\n"
    )
    assert plans_of(load([tmp_path / "hook.py"])) == []


UNIT_TEST = """\
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def unwrap(model):
    return model.module if isinstance(model, FSDP) else model


def test_plain():
    model = nn.Linear(2, 2)
    assert not isinstance(model, FSDP) and type(model) is not FSDP
    assert unwrap({model}) is model
"""


@pytest.mark.parametrize(("model", "unsafe"), [("model", False), ("build()", True)])
def test_a_question_about_plain_models_is_no_obstacle(
    tmp_path: Path, model: str, unsafe: bool
) -> None:
    (tmp_path / "test_it.py").write_text(
        "from library import build\n" * unsafe + UNIT_TEST.format(model=model)
    )
    (found,) = plans_of(load([tmp_path / "test_it.py"]))
    assert not found.blockers
    assert any(note.unsafe for note in found.notes) is unsafe


NO_DEVICE = HEAD.partition("local_rank = ")[0] + 'dist.init_process_group("nccl")\n'
MESH = """
mesh = dist.device_mesh.init_device_mesh("cuda", (dist.get_world_size(),))
model = FSDP(Net(){moved}, device_mesh=mesh)
"""


@pytest.mark.parametrize(
    ("moved", "target", "blocked"),
    [
        ("", None, False),
        ("", "2.7", True),
        (".to(os.environ['LOCAL_RANK'])", None, True),
        (".cuda()", None, True),
    ],
)
def test_a_mesh_sets_the_device(
    tmp_path: Path, moved: str, target: str | None, blocked: bool
) -> None:
    (tmp_path / "train.py").write_text(NO_DEVICE + MESH.format(moved=moved))
    program = load([tmp_path / "train.py"])
    program.options = Options(target=explicit(target))
    (found,) = plans_of(program)
    reason = "neither `device_id` nor `torch.cuda.set_device` nor a mesh says"
    assert [reason in b.reason for b in found.blockers] == [True] * blocked


SYNC = """
# hasattr(model, "no_sync") is true for DDP as well
model = FSDP(Net())
with model.no_sync():
    model(torch.ones(2, 8)).sum().backward()
"""


def test_a_comment_is_no_question(tmp_path: Path) -> None:
    assert "model.set_requires_gradient_sync(False)" in migrated(tmp_path, SYNC)


def test_batch_norms_are_as_other_modules_without_a_policy(tmp_path: Path) -> None:
    given = "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), auto_wrap_policy=None"
    found, _ = plan(tmp_path, f"norm = nn.BatchNorm2d(8)\nmodel = FSDP(Net(), {given})\n")
    assert not found.blockers


def test_a_parameter_of_the_name_of_an_import_is_not_the_import(tmp_path: Path) -> None:
    body = """
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, wrap


def policy(wrap, *rest, **more):
    if wrap == "linear":
        return ModuleWrapPolicy({nn.Linear})
    raise ValueError(f"{wrap}")


model = FSDP(Net(), auto_wrap_policy=policy("linear"))
"""
    found, _ = plan(tmp_path, body)
    assert not found.blockers


HIDDEN = {
    "assigned": "def build(make):\n    FSDP = make()\n    return FSDP(nn.Linear(4, 4))\n",
    "assigned later": "def build(make):\n    if make:\n        FSDP = make()\n    print(FSDP)\n",
    "unpacked": "def build(make):\n    other, (FSDP, *_) = make()\n    return FSDP\n",
    "with": "def build(make):\n    with make() as FSDP:\n        return FSDP\n",
    "loop": "def build(make):\n    for FSDP in make():\n        print(FSDP)\n",
    "comprehension": "names = [str(FSDP) for FSDP in (1, 2)]\n",
    "lambda": "build = lambda FSDP: FSDP(nn.Linear(4, 4))\n",
    "inner function": "def build():\n    def FSDP(x):\n        return x\n    return FSDP(1)\n",
    "closure": "def build(FSDP):\n    def inner():\n        return FSDP(1)\n    return inner\n",
    "class": "class Kinds:\n    FSDP = 1\n    other = FSDP + 1\n",
}
SEEN = {
    "method of the name": "class Net2:\n    def FSDP(self):\n        return FSDP(nn.Linear(4, 4))\n",
    "global": "def build():\n    global FSDP\n    FSDP = print(FSDP)\n",
    "other function": "def build(make):\n    FSDP = make()\n\n\nprint(FSDP)\n",
    "imported again": (
        "def build():\n    try:\n"
        "        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
        "    except ImportError:\n        FSDP = None\n    return FSDP\n"
    ),
    "default": "def build(FSDP=FSDP):\n    return FSDP(1)\n",
}
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"


@pytest.mark.parametrize(
    ("body", "hidden"),
    [*((body, True) for body in HIDDEN.values()), *((body, False) for body in SEEN.values())],
    ids=[*HIDDEN, *SEEN],
)
def test_a_local_name_hides_the_import(body: str, hidden: bool) -> None:
    source = Source("train.py", IMPORT + body)
    found = [node for node, full in symbols_in(source).items() if full.endswith("DataParallel")]
    assert (not found) is hidden


def test_a_local_variable_is_not_migrated(tmp_path: Path) -> None:
    body = """
def other(make):
    FSDP = make()
    return FSDP(nn.Linear(4, 4))


model = FSDP(Net())
"""
    found, text = plan(tmp_path, body)
    assert not found.blockers
    assert "    FSDP = make()\n    return FSDP(nn.Linear(4, 4))\n" in text


QUANTIZED = {
    "a function that nothing calls": "def quantize(model):\n    model.extra = Linear4bit(8, 8)",
    "a test": "print([isinstance(one, Linear4bit) for one in Net().modules()])",
    "a loader of another model": (
        "from transformers import AutoModel\n"
        'teacher = AutoModel.from_pretrained("gpt2", load_in_4bit=True)'
    ),
}


@pytest.mark.parametrize("code", QUANTIZED.values(), ids=QUANTIZED)
def test_quantized_weights_that_are_not_wrapped(code: str, tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path, f"from bitsandbytes.nn import Linear4bit\n\n\n{code}\n\n\nmodel = FSDP(Net())\n"
    )
    assert not found.blockers


def test_a_setting_that_may_quantize_is_a_note(tmp_path: Path) -> None:
    found, _ = plan(
        tmp_path,
        "from transformers import AutoModel\n"
        'flag = bool(os.environ.get("QUANTIZE"))\n'
        'model = FSDP(AutoModel.from_pretrained("gpt2", load_in_8bit=flag))\n',
    )
    assert not found.blockers
    assert any("`load_in_8bit` quantizes" in note.text for note in found.notes)


def test_the_gradient_of_a_tensor_that_a_function_makes(tmp_path: Path) -> None:
    body = """
    def invert(model, target):
        start = {0}
        optimizer = torch.optim.SGD([start], lr=0.1)
        (model(start) - target).square().mean().backward()
        optimizer.step()
        return start.grad.norm()


    model = FSDP(Net())
    print(invert(model, torch.zeros(8)))
    """
    made = "nn.Parameter(torch.zeros(8))"
    assert "start.grad.norm()" in migrated(tmp_path, body.replace("{0}", made))
    given = "next(iter(model.parameters()))"
    attached = body.replace("{0}", made).replace(
        "    optimizer =", "    attach(model, start)\n        optimizer ="
    )
    for other, sure in ((body.replace("{0}", given), True), (attached, False)):
        assert _keeps_part(tmp_path, other) is sure


def test_the_gradients_of_a_model_that_is_not_sharded(tmp_path: Path) -> None:
    body = """
    def largest(net):
        {0}
        net(torch.randn(2, 4)).sum().backward()
        return max(p.grad.norm().item() for p in net.parameters())


    model = FSDP(Net())
    print(largest({1}))
    """
    made, given = body.replace("{0}", "net = nn.Linear(4, 4)"), body.replace("{0}", "pass")
    assert "p.grad.norm().item()" in migrated(tmp_path, made.replace("{1}", "None"))
    sharded = given.replace("{1}", "model")
    both = sharded.rstrip() + "\n    print(largest(nn.Linear(4, 4)))\n"
    wrapped = made.replace("{1}", "None").replace(
        "        net(", "        net = FSDP(net)\n        net("
    )
    for other in (sharded, both, wrapped):
        assert _keeps_part(tmp_path, other)
    part = "(p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad).norm()"
    assert part in plan(tmp_path, both)[1]


def _keeps_part(tmp_path: Path, body: str) -> bool:
    """Whether the norm stays that of the rank's part; otherwise the migration is blocked."""
    found, text = plan(tmp_path, body)
    if found.blockers:
        assert [one.blocker.code for one in found.blockers] == ["FSDP299-gradient-part"]
        return False
    assert ".grad.to_local()" in text
    return any("this rank's part" in note.text for note in found.notes if note.unsafe)
