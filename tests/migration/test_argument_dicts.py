"""Dicts of arguments that several calls spread, or that are made elsewhere than the call."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

from fsdplint.engine.fix import fix
from fsdplint.engine.workspace import Workspace
from fsdplint.registry.rules import all_rules

WRITTEN_OUT = {
    "a dict that is filled under a condition": (
        """
        options = dict(use_orig_params=True)
        if os.environ.get("OFFLOAD"):
            options["cpu_offload"] = CPUOffload(offload_params=True)
        model = FSDP(Net(), **options)
        other = FSDP(Net(), **options)
        """,
        """
        cpu_offload = None
        if os.environ.get("OFFLOAD"):
            cpu_offload = CPUOffloadPolicy()
        model = fully_shard(Net(), offload_policy=cpu_offload or OffloadPolicy())
        other = fully_shard(Net(), offload_policy=cpu_offload or OffloadPolicy())
        """,
    ),
    "update with keywords": (
        """
        options = dict(use_orig_params=True)
        options.update(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        model = FSDP(Net(), **options)
        """,
        """
        model = fully_shard(Net(), reshard_after_forward=False)
        """,
    ),
    "update with a dict": (
        """
        options = {"device_id": local_rank}
        options.update({"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16)})
        model = FSDP(Net(), **options)
        """,
        """
        mixed_precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        model = fully_shard(Net(), mp_policy=mixed_precision)
        """,
    ),
    "a value with an effect, spread in functions": (
        """
        OPTIONS = {"mixed_precision": MixedPrecision(param_dtype=print() or torch.bfloat16)}


        def make():
            return FSDP(Net(), **OPTIONS)


        def make_other():
            return FSDP(Net(), use_orig_params=True, **OPTIONS)


        models = make(), make_other()
        """,
        """
        mixed_precision = MixedPrecisionPolicy(param_dtype=print() or torch.bfloat16, reduce_dtype=print() or torch.bfloat16)


        def make():
            return fully_shard(Net(), mp_policy=mixed_precision)


        def make_other():
            return fully_shard(Net(), mp_policy=mixed_precision)


        models = make(), make_other()
        """,
    ),
    "a key of one branch": (
        """
        def make(model, how):
            options = dict(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
            if how == "whole":
                model = FSDP(model, **options)
            elif how == "blocks":
                options["auto_wrap_policy"] = ModuleWrapPolicy({Block})
                model = FSDP(model, **options)
            return model


        model = make(Net(), os.environ["HOW"])
        """,
        """
        def make(model, how):
            mixed_precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
            if how == "whole":
                fully_shard(model, mp_policy=mixed_precision)
            elif how == "blocks":
                for module in reversed(list(model.modules())):
                    if isinstance(module, Block):
                        fully_shard(module, mp_policy=mixed_precision)
                fully_shard(model, mp_policy=mixed_precision)
            return model


        model = make(Net(), os.environ["HOW"])
        """,
    ),
    "keywords that a function hands on": (
        """
        def shard(model, **kwargs):
            return FSDP(model, use_orig_params=True, **kwargs)


        model = shard(Net(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        other = shard(Net(), cpu_offload=CPUOffload(offload_params=True), device_id=local_rank)
        """,
        """
        def shard(model, *, cpu_offload=None, mixed_precision=None, device_id=None):
            return fully_shard(
                model,
                offload_policy=cpu_offload or OffloadPolicy(),
                mp_policy=mixed_precision or MixedPrecisionPolicy(),
            )


        model = shard(Net(), mixed_precision=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))
        other = shard(Net(), cpu_offload=CPUOffloadPolicy(), device_id=local_rank)
        """,
    ),
    "a dict that a function gets": (
        """
        def shard(model, options):
            return FSDP(model, **options)


        def make():
            options = {"device_id": local_rank}
            if os.environ.get("OFFLOAD"):
                options["cpu_offload"] = CPUOffload(offload_params=True)
            return shard(Net(), options)


        model = make()
        """,
        """
        def shard(model, *, cpu_offload, device_id):
            return fully_shard(model, offload_policy=cpu_offload or OffloadPolicy())


        def make():
            cpu_offload = None
            if os.environ.get("OFFLOAD"):
                cpu_offload = CPUOffloadPolicy()
            return shard(Net(), device_id=local_rank, cpu_offload=cpu_offload)


        model = make()
        """,
    ),
    "a function that only makes the dict": (
        """
        def options():
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, device_id=local_rank)


        model = FSDP(Net(), **options())
        """,
        """
        model = fully_shard(Net(), reshard_after_forward=False)
        """,
    ),
    "a function that fills the dict": (
        """
        def options(offload):
            found = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
            if offload:
                found["cpu_offload"] = CPUOffload(offload_params=True)
            return found


        arguments = options(True)
        model = FSDP(Net(), **arguments)
        other = FSDP(Net(), **arguments)
        """,
        """
        def options(offload):
            cpu_offload = None
            if offload:
                cpu_offload = CPUOffloadPolicy()
            return cpu_offload


        fsdp_cpu_offload = options(True)
        model = fully_shard(
            Net(), offload_policy=fsdp_cpu_offload or OffloadPolicy(), reshard_after_forward=False
        )
        other = fully_shard(
            Net(), offload_policy=fsdp_cpu_offload or OffloadPolicy(), reshard_after_forward=False
        )
        """,
    ),
    "a function with several dicts": (
        """
        def options(kind):
            if kind == "fast":
                return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
            return {"cpu_offload": CPUOffload(offload_params=True)}


        def make(net, kind):
            return FSDP(net, **options(kind))


        model = make(Net(), os.environ["KIND"])
        """,
        """
        def options(kind):
            if kind == "fast":
                return "SHARD_GRAD_OP", None
            return None, CPUOffloadPolicy()


        def make(net, kind):
            sharding_strategy, cpu_offload = options(kind)
            fsdp_kwargs = {}
            if sharding_strategy == "SHARD_GRAD_OP":
                fsdp_kwargs["reshard_after_forward"] = False
            return fully_shard(net, **fsdp_kwargs, offload_policy=cpu_offload or OffloadPolicy())


        model = make(Net(), os.environ["KIND"])
        """,
    ),
}


@pytest.mark.parametrize(
    ("body", "expected"), [pytest.param(*pair, id=i) for i, pair in WRITTEN_OUT.items()]
)
def test_the_items_are_written_out(tmp_path: Path, body: str, expected: str) -> None:
    found = migrated(tmp_path, textwrap.dedent(body))
    assert found.strip() == textwrap.dedent(expected).strip()


KEPT = {
    "a function that yields": """
        def options():
            yield 1
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        arguments = options()
        model = FSDP(Net(), **arguments)
    """,
    "a function that is called for something else, too": """
        def options():
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        print(len(options()))
        model = FSDP(Net(), **options())
    """,
    "a function with an effect that comes later": """
        def options():
            print("options")
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        model = FSDP(Net(), **options())
    """,
    "a function that may return nothing": """
        def options(kind):
            if kind:
                return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        arguments = options(1)
        model = FSDP(Net(), **arguments)
    """,
    "keywords that a function also reads": """
        def shard(model, **kwargs):
            print(kwargs.get("device_id"))
            return FSDP(model, **kwargs)


        model = shard(Net(), device_id=local_rank)
    """,
    "keywords of a function that is handed on": """
        def shard(model, **kwargs):
            return FSDP(model, **kwargs)


        model = shard(Net(), device_id=local_rank)
        others = list(map(shard, [Net()]))
    """,
    "a dict that may be left out": """
        def shard(model, options={}):
            return FSDP(model, **options)


        model = shard(Net())
    """,
    "a dict that another function gets": """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        change(options)
        model = FSDP(Net(), **options)
        other = FSDP(Net(), **options)
    """,
    "a dict with a second name": """
        options = {"use_orig_params": True}
        others = options
        others["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        model = FSDP(Net(), **options)
        other = FSDP(Net(), **options)
    """,
    "a key that is deleted": """
        options = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        if os.environ.get("FULL"):
            del options["sharding_strategy"]
        model = FSDP(Net(), **options)
        other = FSDP(Net(), **options)
    """,
    "a test for a key": """
        options = {}
        if os.environ.get("GRAD_OP"):
            options["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        print("sharding_strategy" in options)
        model = FSDP(Net(), **options)
    """,
}


@pytest.mark.parametrize("body", [pytest.param(b, id=i) for i, b in KEPT.items()])
def test_a_dict_with_other_uses_blocks(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, body)
    assert found.blockers
    assert not found.edits


def test_a_key_in_a_loop_reaches_the_next_round(tmp_path: Path) -> None:
    body = """
        options = {"use_orig_params": True}
        models = []
        for _ in range(2):
            models.append(FSDP(Net(), **options))
            options["cpu_offload"] = CPUOffload(offload_params=True)
        last = FSDP(Net(), **options)
    """
    text = migrated(tmp_path, body)
    assert text.strip().startswith("cpu_offload = None\n")
    assert text.count("offload_policy=cpu_offload or OffloadPolicy()") == 2


def test_a_policy_that_a_method_may_not_get(tmp_path: Path) -> None:
    body = """
        class Trainer:
            def __init__(self, model):
                policy = None
                if os.environ.get("BLOCKS"):
                    policy = ModuleWrapPolicy({Block})
                self.model = self.shard(model, policy=policy)

            def shard(self, model, policy):
                return FSDP(model, auto_wrap_policy=policy)


        trainer = Trainer(Net())
    """
    assert "        if policy is not None:\n" in migrated(tmp_path, body)


def test_two_results_of_a_function_have_variables_of_their_own(tmp_path: Path) -> None:
    body = """
        def options(dtype):
            return dict(mixed_precision=MixedPrecision(param_dtype=dtype))


        one = options(torch.bfloat16)
        other = options(torch.float16)
        first = FSDP(Net(), **one)
        second = FSDP(Net(), **other)
    """
    lines = migrated(tmp_path, body).splitlines()
    names = [line.partition(" = ")[0] for line in lines if " = options(" in line]
    assert len(set(names)) == 2
    policies = [line.partition("mp_policy=")[2].rstrip(")") for line in lines[-2:]]
    assert policies == names


def test_helpers_stand_above_the_first_call(tmp_path: Path) -> None:
    body = """
        model = FSDP(Net(), sharding_strategy=ShardingStrategy[os.environ["HOW"]])
        other = FSDP(Net(), sharding_strategy=ShardingStrategy[os.environ["HOW"]])
    """
    text = migrated(tmp_path, body)
    assert text.index("def sharding_arguments") < text.index("model = fully_shard")


HELPERS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


def options(kind):
    found = dict(use_orig_params=kind)
    if kind:
        found["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
    return found


def shard(model, **kwargs):
    return FSDP(model, **kwargs)
"""
TRAIN = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from helpers import options, shard

torch.cuda.set_device(0)
dist.init_process_group("nccl")
given = options(os.environ["KIND"])
model = shard(nn.Linear(4, 4), **given)
"""
OTHER = "from helpers import options\n\nprint(len(options(1)))\n"


@pytest.mark.parametrize("has_other", [False, True])
def test_callers_in_files_without_fsdp1(tmp_path: Path, has_other: bool) -> None:
    """The files change together; another use of the dict in any file of the program blocks."""
    texts = {"helpers.py": HELPERS, "train.py": TRAIN, **({"other.py": OTHER} if has_other else {})}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in texts]
    found = fix(Workspace(paths), [rule() for rule in all_rules()]).texts
    if has_other:
        assert not found
        return
    assert "return sharding_strategy, kind" in found[tmp_path / "helpers.py"]
    lines = found[tmp_path / "train.py"].splitlines()
    assert lines[-2] == 'sharding_strategy, use_orig_params = options(os.environ["KIND"])'


SETTINGS = """\
import functools
import torch
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from blocks import Block

bf16 = MixedPrecision(param_dtype=torch.bfloat16)
options = {
    "auto_wrap_policy": functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    ),
    "mixed_precision": bf16,
    "use_orig_params": True,
}
"""
BLOCKS = """\
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)
"""
IMPORTING = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from blocks import Block
from settings import options as shared

torch.cuda.set_device(0)
dist.init_process_group("nccl")
model = FSDP(nn.Sequential(Block(), Block()), **shared, device_id=0)
other = FSDP(nn.Sequential(Block()), **shared)
"""
USES = {
    "spread": "",
    "an item": "print(shared['use_orig_params'])\n",
    "an assignment": "shared['use_orig_params'] = False\n",
    "another call": "print(dict(**shared))\n",
    "an attribute": "import settings\nprint(settings.options)\n",
}


@pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))
def test_a_dict_that_another_file_imports(tmp_path: Path, use: str) -> None:
    """The file imports the variables instead, unless it does something else with the dict."""
    texts = {"settings.py": SETTINGS, "blocks.py": BLOCKS, "train.py": IMPORTING + use}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in texts]
    found = fix(Workspace(paths), [rule() for rule in all_rules()]).texts
    if use:
        assert not found
        return
    assert found[tmp_path / "settings.py"].splitlines()[-3:] == [
        "bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
        "auto_wrap_policy = lambda module: isinstance(module, Block)",
        "mixed_precision = bf16",
    ]
    text = found[tmp_path / "train.py"]
    assert "from settings import auto_wrap_policy, mixed_precision\n" in text
    assert text.splitlines()[-5:] == [
        "other = nn.Sequential(Block())",
        "for module in reversed(list(other.modules())):",
        "    if auto_wrap_policy(module):",
        "        fully_shard(module, mp_policy=mixed_precision)",
        "fully_shard(other, mp_policy=mixed_precision)",
    ]


FILLED = """
STRATEGIES = {"chosen": ShardingStrategy.NO_SHARD, "other": ShardingStrategy.FULL_SHARD}
SETTINGS = {"strategy": "chosen"}
fsdp_arguments = {"use_orig_params": True}
ITEMS
model = FSDP(Net(), **fsdp_arguments)
"""


@pytest.mark.parametrize(
    ("items", "function"),
    [
        (
            'fsdp_arguments["sharding_strategy"] = STRATEGIES[SETTINGS["strategy"]]',
            "sharding_arguments",
        ),
        (
            'fsdp_arguments["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD\n'
            'fsdp_arguments["process_group"] = (dist.new_group([0, 1]), dist.new_group([0]))',
            "mesh_of_groups",
        ),
    ],
)
def test_a_function_is_defined_before_a_dict_needs_it(
    items: str, function: str, tmp_path: Path
) -> None:
    text = migrated(tmp_path, FILLED.replace("ITEMS", items))
    assert text.index(f"def {function}(") < text.index("fsdp_arguments")


def test_a_new_function_does_not_hide_one_of_the_program(tmp_path: Path) -> None:
    body = """
    STRATEGIES = {"chosen": ShardingStrategy.NO_SHARD, "other": ShardingStrategy.FULL_SHARD}
    SETTINGS = {"strategy": "chosen"}


    def sharding_arguments(name):
        return name.lower()


    name = sharding_arguments("OTHER")
    model = FSDP(Net(), sharding_strategy=STRATEGIES[SETTINGS["strategy"]])
    """
    text = migrated(tmp_path, body)
    assert text.count("def sharding_arguments(") == 1
    assert 'fsdp_sharding_arguments(STRATEGIES[SETTINGS["strategy"]])' in text


def test_an_offload_that_is_off_needs_no_import(tmp_path: Path) -> None:
    body = """
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    config = dict(auto_wrap_policy=policy, cpu_offload=CPUOffload(offload_params=False))
    model = FSDP(Net(), **config)
    """
    assert "OffloadPolicy" not in plan(tmp_path, body)[1]
