"""Dicts of arguments that are made in any way: the items are read by their keys."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

STRATEGY = 'options.get("sharding_strategy") == "SHARD_GRAD_OP"'
PRECISION = 'mp_policy=options.get("mixed_precision") or MixedPrecisionPolicy()'

READ = {
    "a method that updates": (
        """
        class Setup:
            def arguments(self):
                given = {"use_orig_params": True}
                given |= {"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16)}
                return given

            def shard(self, net):
                return FSDP(net, **self.arguments())


        model = Setup().shard(Net())
        """,
        ["options = self.arguments()\n", PRECISION],
    ),
    "a method that a subclass overrides": (
        """
        class Base:
            def arguments(self):
                return {}

            def shard(self, net):
                return FSDP(net, use_orig_params=True, **self.arguments())


        class Half(Base):
            def arguments(self):
                return super().arguments() | {
                    "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16)
                }


        model = Base().shard(Net())
        other = Half().shard(Net())
        """,
        ["options = self.arguments()\n", PRECISION],
    ),
    "a property": (
        """
        class Setup:
            def __init__(self, half):
                self.half = half

            @property
            def arguments(self):
                given = {}
                if self.half:
                    given["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
                return given

            def shard(self, net):
                return FSDP(net, **self.arguments)


        model = Setup("HALF" in os.environ).shard(Net())
        """,
        ["options = self.arguments\n", PRECISION],
    ),
    "an attribute that a constructor fills": (
        """
        class Engine:
            def __init__(self, **given):
                self.steps = given.pop("steps", 3)
                self.options = given

            def shard(self, net):
                return FSDP(net, **self.options)


        model = Engine(steps=2, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP).shard(Net())
        """,
        ["if self." + STRATEGY],
    ),
    "keywords that functions hand on": (
        """
        def inner(net, **options):
            return FSDP(net, **options)


        def outer(net, verbose, **options):
            if verbose:
                print("wrapping")
            return inner(net, use_orig_params=True, **options)


        model = outer(Net(), True, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        """,
        [STRATEGY],
    ),
    "a policy among keywords": (
        """
        def shard(net, **options):
            options.setdefault("use_orig_params", True)
            return FSDP(net, **options)


        model = shard(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
        """,
        [
            'should_shard = options["auto_wrap_policy"]\n',
            "auto_wrap_policy=lambda module: isinstance(module, Block)",
        ],
    ),
    "merged dicts": (
        """
        BASE = dict(use_orig_params=True, limit_all_gathers=True)


        def shard(net, more):
            return FSDP(net, **{**BASE, **more})


        model = shard(Net(), {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP})
        """,
        ["options = {**BASE, **more}\n", STRATEGY],
    ),
    "an item of settings": (
        """
        SETTINGS = {"width": 8, "options": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}}


        def shard(net, settings):
            return FSDP(net, **settings["options"])


        model = shard(Net(), SETTINGS)
        """,
        ['if (settings["options"].get("sharding_strategy")) == "SHARD_GRAD_OP":'],
    ),
    "a returned tuple": (
        """
        def build(half):
            options = {"use_orig_params": True}
            if half:
                options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
            return Net(), options


        net, options = build("HALF" in os.environ)
        model = FSDP(net, **options)
        """,
        [PRECISION],
    ),
    "the fields of a dataclass": (
        """
        import dataclasses


        @dataclasses.dataclass
        class Options:
            sharding_strategy: ShardingStrategy = ShardingStrategy.SHARD_GRAD_OP
            use_orig_params: bool = True

            def given(self):
                return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}


        model = FSDP(Net(), **Options().given())
        """,
        ["options = Options().given()\n", 'sharding_arguments(options.get("sharding_strategy"))'],
    ),
    "the dtypes of a precision": (
        """
        def dtypes(half):
            found = {"param_dtype": torch.bfloat16 if half else torch.float32}
            found["reduce_dtype"] = torch.float32
            return found


        model = FSDP(Net(), mixed_precision=MixedPrecision(**dtypes("HALF" in os.environ)))
        """,
        ['param_dtype=options["param_dtype"], reduce_dtype=options["reduce_dtype"]'],
    ),
    "dtypes under the keys of settings": (
        """
        import yaml

        settings = yaml.safe_load(open(os.environ["SETTINGS"]))
        low = {key: getattr(torch, name) for key, name in settings["precision"].items()}
        model = FSDP(Net(), mixed_precision=MixedPrecision(**low) if low else None)
        """,
        ['param_dtype=low.get("param_dtype"), reduce_dtype=low.get("reduce_dtype")'],
    ),
    "dtypes that a method looks up": (
        """
        class Setup:
            TYPES = {"half": torch.bfloat16, "full": torch.float32}

            def dtypes(self, names):
                return {f"{key}_dtype": self.TYPES[name] for key, name in names.items()}

            def shard(self, net, names):
                return FSDP(net, mixed_precision=MixedPrecision(**self.dtypes(names)))


        model = Setup().shard(Net(), dict(one.split("=") for one in os.environ["TYPES"].split()))
        """,
        [
            "options = self.dtypes(names)\n",
            'param_dtype=options.get("param_dtype"), reduce_dtype=options.get("reduce_dtype")',
        ],
    ),
    "what FSDP2 does not have": (
        """
        class Setup:
            def arguments(self):
                return dict(backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True)

            def shard(self, net):
                return FSDP(net, **self.arguments())


        model = Setup().shard(Net())
        """,
        ['backward_prefetch="BACKWARD_PRE"', "return fully_shard(net)"],
    ),
    "a policy that is set to None before each call": (
        """
        def arguments():
            return dict(
                auto_wrap_policy=size_based_auto_wrap_policy,
                mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
            )


        class Pair(nn.Module):
            def __init__(self, options):
                super().__init__()
                self.first = FSDP(Net(), **options)
                self.second = FSDP(Net(), **options)


        options = arguments()
        options["auto_wrap_policy"] = None
        model = FSDP(Pair(options), **options)
        """,
        ["auto_wrap_policy=None,", f"fully_shard(Pair(options), {PRECISION})"],
    ),
    "a dict that is also printed": (
        """
        def arguments():
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        print(len(arguments()))
        model = FSDP(Net(), **arguments())
        """,
        ["options = arguments()\n", STRATEGY],
    ),
    "keywords that the function reads": (
        """
        def shard(net, **options):
            print(options.get("sharding_strategy"))
            return FSDP(net, **options)


        model = shard(Net(), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        """,
        [STRATEGY],
    ),
    "a dict with a second name": (
        """
        options = {"use_orig_params": True}
        others = options
        others["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        model = FSDP(Net(), **options)
        """,
        [STRATEGY],
    ),
    "a key that is deleted": (
        """
        options = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        if os.environ.get("FULL"):
            del options["sharding_strategy"]
        model = FSDP(Net(), **options)
        """,
        [STRATEGY],
    ),
    "a key that goes after the call": (
        """
        options = {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}
        model = FSDP(Net(), **options)
        options.pop("sharding_strategy")
        """,
        [STRATEGY],
    ),
    "a strategy that is set twice": (
        """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        if os.environ.get("SAVE"):
            options["sharding_strategy"] = ShardingStrategy.FULL_SHARD
        print(options)
        model = FSDP(Net(), **options)
        """,
        [STRATEGY],
    ),
    "calls with different keys": (
        """
        def shard(net, options):
            return FSDP(net, **options)


        for options in ({"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, {}):
            model = shard(Net(), options)
        """,
        [STRATEGY],
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(READ.values()), ids=list(READ))
def test_the_items_are_read_by_their_keys(tmp_path: Path, body: str, expected: list[str]) -> None:
    text = migrated(tmp_path, textwrap.dedent(body))
    assert [one for one in expected if one not in text] == []


UNKNOWN = {
    "another dict on some ranks": """
        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        if local_rank:
            options = dict(cpu_offload=CPUOffload(True))
        model = FSDP(Net(), **options)
    """,
    "keys from outside": """
        import json

        model = FSDP(Net(), **json.loads(os.environ["OPTIONS"]))
    """,
    "a precision from outside": """
        import json

        low = MixedPrecision(**json.loads(os.environ["OPTIONS"]))
        model = FSDP(Net(), mixed_precision=low)
    """,
    "a dict that other code gets": """
        from library import change

        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        change(options)
        model = FSDP(Net(), **{**options})
    """,
    "a parameter for which no caller gives anything": """
        def shard(net, options={}):
            return FSDP(net, **options)


        model = shard(Net())
    """,
    "a dict whose making has an effect that would come too early": """
        def net():
            print("net")
            return Net()


        def arguments():
            print("arguments")
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        model = FSDP(net(), **arguments())
    """,
}


@pytest.mark.parametrize("body", list(UNKNOWN.values()), ids=list(UNKNOWN))
def test_a_dict_that_the_code_does_not_show_blocks(tmp_path: Path, body: str) -> None:
    found, _ = plan(tmp_path, textwrap.dedent(body))
    assert found.blockers and not found.edits


def test_a_key_of_code_that_no_run_reaches_counts(tmp_path: Path) -> None:
    body = """
        class Setup:
            def arguments(self, size):
                given = {"use_orig_params": True}
                if dist.get_world_size() == size and os.path.exists("few"):
                    given["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
                return given

            def shard(self, net):
                return FSDP(net, **self.arguments(77))


        model = Setup().shard(Net())
    """
    assert STRATEGY in migrated(tmp_path, body)


FLAGS = """
from absl import flags

FLAGS = flags.FLAGS


def arguments(rank):
    def allocate(module):
        return module.to_empty(device=torch.cuda.current_device(), recurse=False)

    given = {"use_orig_params": True}
    if FLAGS.low_memory:
        given["param_init_fn"] = allocate if rank != 0 else None
        given["sync_module_states"] = True
    if FLAGS.in_turn:
        given["device_id"] = rank
    else:
        given["device_id"] = torch.cuda.current_device()
    return given


def build(rank):
    given = arguments(rank)
    print(given)
    with torch.device("cuda" if rank == 0 else "meta"):
        net = Net()
    return FSDP(net, **given)


model = build(dist.get_rank())
"""


def test_a_key_under_an_unknown_setting_has_a_default(tmp_path: Path) -> None:
    text = migrated(tmp_path, FLAGS)
    assert 'if given.get("sync_module_states", False):' in text
    assert 'given["device_id"]' in text


def test_a_function_in_a_dict_only_allocates(tmp_path: Path) -> None:
    text = migrated(tmp_path, FLAGS)
    assert "    model.to_empty(device=torch.cuda.current_device())\n" in text.replace(
        "net.", "model."
    )
    assert "param_init_fn(" not in text
