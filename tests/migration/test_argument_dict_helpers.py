"""Functions that a migration writes for dicts of arguments, and where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import migrated, plan


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


@pytest.mark.parametrize(
    ("more", "annotation"),
    [("", ""), ('found["cpu_offload"] = CPUOffload(offload_params=True)', " -> tuple")],
)
def test_the_annotation_says_what_is_returned(more: str, annotation: str, tmp_path: Path) -> None:
    body = f"""
def options(kind: str) -> dict[str, object]:
    found = dict(sharding_strategy=ShardingStrategy.FULL_SHARD)
    if kind == "zero2":
        found["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
        {more or "pass"}
    return found


def build(net, kind):
    return FSDP(net, **options(kind))


model = build(Net(), os.environ["KIND"])
"""
    text = migrated(tmp_path, body)
    assert f"def options(kind: str){annotation}:\n" in text


def test_many_values_stand_on_lines_of_their_own(tmp_path: Path) -> None:
    body = """
def options(settings):
    found = dict(sharding_strategy=ShardingStrategy.FULL_SHARD, mixed_precision=None)
    if settings.get("zero2"):
        found["sharding_strategy"] = ShardingStrategy.SHARD_GRAD_OP
    if settings.get("half"):
        found["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
    if settings.get("offload"):
        found["cpu_offload"] = CPUOffload(offload_params=True)
    found["sync_module_states"] = settings.get("synchronize", False)
    found["device_id"] = torch.device("cuda", settings["device"])
    return found


def build(net, settings):
    return FSDP(net, **options(settings))


model = build(Net(), dict(os.environ))
"""
    text = migrated(tmp_path, body)
    names = ["sharding_strategy", "mixed_precision", "cpu_offload", "sync_module_states"]
    assert all(f"\n        {name},\n" in text for name in names)
    assert "\n    ) = options(settings)\n" in text


ENABLED = """
def fsdp_params(half):
    params = dict(device_id=local_rank, forward_prefetch=True)
    if half:
        params.update(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    return params


def build(half):
    with enable_wrap(wrapper_cls=FSDP, **fsdp_params(half)):
        model = wrap(Net())
    return model


build(bool(os.environ.get("HALF")))
"""


def test_a_function_gives_the_arguments_of_a_block(tmp_path: Path) -> None:
    text = migrated(tmp_path, ENABLED)
    assert (
        "    mixed_precision = fsdp_params(half)\n"
        "    model = fully_shard(Net(), mp_policy=mixed_precision or MixedPrecisionPolicy())\n"
        "    return model\n" in text
    )
    two = ENABLED.replace("with enable_wrap", "with torch.no_grad(), enable_wrap")
    found, _ = plan(tmp_path, two)
    assert found.blockers
