"""Every public name of FSDP1 is in the table, and becomes what the table says, or blocks with a reason."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from forms import plan

from fsdplint.migration.symbols import APIS, FSDP, reason

MODEL = "model = FSDP(Net())\n"
OPTIMIZER = MODEL + "optimizer = torch.optim.AdamW(model.parameters())\n"
TYPES = (
    MODEL + "with FSDP.state_dict_type(model, StateDictType.{0}):\n    state = model.state_dict()"
)
MIXED = "model = FSDP(Net(), mixed_precision=MixedPrecision({0}))"
POLICY = "model = FSDP(Net(), auto_wrap_policy={0})"
STRATEGY = "model = FSDP(Net(), sharding_strategy=ShardingStrategy.{0})"
IMPORT = "from torch.distributed.fsdp import {0}\n" + MODEL + "{1}"
CONFIG = (
    "from torch.distributed.fsdp import {0}\n" + MODEL + "with FSDP.state_dict_type(model, "
    "StateDictType.{1}, {0}({2})):\n    state = model.state_dict()"
)

# For each name the lines of a program, and either a part of what they become ("" for lines that only go
# away) or, behind "!", a part of the reason that they block with.
PROGRAMS: dict[str, tuple[str, str]] = {
    FSDP: (MODEL, "model = fully_shard(Net())"),
    f"{FSDP}.module": (MODEL + "print(model.module.blocks)", "print(model.blocks)"),
    f"{FSDP}.process_group": (
        "group = dist.new_group([0])\nmodel = FSDP(Net(), group)\nprint(model.process_group.rank())",
        "print(group.rank())",
    ),
    f"{FSDP}.sharding_strategy": (
        "model = FSDP(Net(), None, ShardingStrategy.SHARD_GRAD_OP)",
        "fully_shard(Net(), reshard_after_forward=False)",
    ),
    f"{FSDP}.cpu_offload": (
        "model = FSDP(Net(), None, None, CPUOffload(True))",
        "offload_policy=CPUOffloadPolicy()",
    ),
    f"{FSDP}.auto_wrap_policy": (
        "model = FSDP(Net(), None, None, None, ModuleWrapPolicy({Block}))",
        "if isinstance(module, Block):\n        fully_shard(module)",
    ),
    f"{FSDP}.backward_prefetch": (
        "model = FSDP(Net(), backward_prefetch=None)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.mixed_precision": (
        "model = FSDP(Net(), mixed_precision=None)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.ignored_modules": (
        "net = Net()\nmodel = FSDP(net, ignored_modules=None)",
        "model = fully_shard(net)",
    ),
    f"{FSDP}.param_init_fn": (
        "model = FSDP(Net(), param_init_fn=None)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.device_id": (
        "model = FSDP(Net(), device_id=local_rank)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.sync_module_states": (
        "model = FSDP(Net(), sync_module_states=True)",
        "broadcast_from_rank0=True",
    ),
    f"{FSDP}.forward_prefetch": (
        "model = FSDP(Net(), forward_prefetch=True)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.limit_all_gathers": (
        "model = FSDP(Net(), limit_all_gathers=True)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.use_orig_params": (
        "model = FSDP(Net(), use_orig_params=False)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.ignored_states": (
        "model = FSDP(Net(), ignored_states=None)",
        "model = fully_shard(Net())",
    ),
    f"{FSDP}.device_mesh": (
        "from torch.distributed.device_mesh import init_device_mesh\n"
        'mesh = init_device_mesh("cuda", (2,))\nmodel = FSDP(Net(), device_mesh=mesh)',
        "model = fully_shard(Net(), mesh=mesh)",
    ),
    f"{FSDP}.apply": (
        "def init(module):\n    if isinstance(module, nn.Linear):\n"
        "        nn.init.zeros_(module.weight)\n\n\n" + MODEL + "model.apply(init)",
        "model.apply(init)",
    ),
    f"{FSDP}.check_is_root": (
        MODEL + "print(model.check_is_root())",
        "! the module that the program calls",
    ),
    f"{FSDP}.clip_grad_norm_": (
        MODEL + "model.clip_grad_norm_(1.0, norm_type=1.0)",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1.0)",
    ),
    f"{FSDP}.forward": (MODEL + "model.forward(torch.ones(2, 8))", "model(torch.ones(2, 8))"),
    f"{FSDP}.fsdp_modules": (
        MODEL + "print(len(FSDP.fsdp_modules(model)))",
        "len([m for m in model.modules() if isinstance(m, FSDPModule)])",
    ),
    f"{FSDP}.named_buffers": (
        MODEL + "print(dict(model.named_buffers()))",
        "print(dict(model.named_buffers()))",
    ),
    f"{FSDP}.named_parameters": (
        MODEL + "print(dict(model.named_parameters()))",
        "print(dict(model.named_parameters()))",
    ),
    f"{FSDP}.no_sync": (
        MODEL + "with model.no_sync():\n    model(torch.ones(2, 8)).sum().backward()",
        "model.set_requires_gradient_sync(False)\n",
    ),
    f"{FSDP}.register_comm_hook": (
        MODEL + "model.register_comm_hook(None, print)",
        "! no communication hooks",
    ),
    f"{FSDP}.summon_full_params": (
        MODEL + "with FSDP.summon_full_params(model):\n    print(model.blocks)",
        "model.unshard()\nprint(model.blocks)\nmodel.reshard()",
    ),
    f"{FSDP}.state_dict_type": (TYPES.format("FULL_STATE_DICT"), "state = get_model_state_dict("),
    f"{FSDP}.set_state_dict_type": (
        MODEL + "FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)\n"
        "state = model.state_dict()",
        "state = ",
    ),
    f"{FSDP}.get_state_dict_type": (
        MODEL + "print(FSDP.get_state_dict_type(model))",
        "! states of FSDP2 have no type",
    ),
    f"{FSDP}.full_optim_state_dict": (
        OPTIMIZER + "state = FSDP.full_optim_state_dict(model, optimizer)",
        "get_optimizer_state_dict(",
    ),
    f"{FSDP}.sharded_optim_state_dict": (
        OPTIMIZER + "state = FSDP.sharded_optim_state_dict(model, optimizer)",
        "get_optimizer_state_dict(model, optimizer)",
    ),
    f"{FSDP}.optim_state_dict": (
        OPTIMIZER + "state = FSDP.optim_state_dict(model, optimizer)",
        "get_optimizer_state_dict(",
    ),
    f"{FSDP}.optim_state_dict_to_load": (
        OPTIMIZER + 'state = torch.load("x.pt")\noptimizer.load_state_dict('
        "FSDP.optim_state_dict_to_load(model, optimizer, state))",
        "set_optimizer_state_dict(",
    ),
    f"{FSDP}.shard_full_optim_state_dict": (
        OPTIMIZER + 'state = torch.load("x.pt")\noptimizer.load_state_dict('
        "FSDP.shard_full_optim_state_dict(state, model, optim=optimizer))",
        "set_optimizer_state_dict(",
    ),
    f"{FSDP}.scatter_full_optim_state_dict": (
        OPTIMIZER + 'state = torch.load("x.pt")\noptimizer.load_state_dict('
        "FSDP.scatter_full_optim_state_dict(state, model, optim=optimizer))",
        "broadcast_from_rank0=True",
    ),
    f"{FSDP}.flatten_sharded_optim_state_dict": (
        OPTIMIZER + "state = read()\noptimizer.load_state_dict("
        "FSDP.flatten_sharded_optim_state_dict(state, model, optimizer))",
        "set_optimizer_state_dict(",
    ),
    f"{FSDP}.rekey_optim_state_dict": (
        "from torch.distributed.fsdp import OptimStateKeyType\n"
        + OPTIMIZER
        + "state = FSDP.optim_state_dict(model, optimizer)\n"
        "state = FSDP.rekey_optim_state_dict(state, OptimStateKeyType.PARAM_ID, Net())",
        "state = with_numbers(state, Net())",
    ),
    f"{FSDP}.rank": (MODEL + "print(model.rank)", "print(dist.get_rank())"),
    f"{FSDP}.world_size": (MODEL + "print(model.world_size)", "print(dist.get_world_size())"),
    f"{FSDP}.compute_device": (
        MODEL + "print(model.compute_device)",
        r"! next\(model.parameters\(\)\).device",
    ),
    f"{FSDP}._fsdp_wrapped_module": (
        MODEL + "print(model._fsdp_wrapped_module.blocks)",
        "print(model.blocks)",
    ),
    f"{FSDP}._handle": (MODEL + "print(model._handle)", "! no flat parameters"),
    "ShardingStrategy": (
        'model = FSDP(Net(), sharding_strategy=ShardingStrategy[os.environ["STRATEGY"]])',
        "fully_shard(",
    ),
    "ShardingStrategy.FULL_SHARD": (STRATEGY.format("FULL_SHARD"), "model = fully_shard(Net())"),
    "ShardingStrategy.SHARD_GRAD_OP": (
        STRATEGY.format("SHARD_GRAD_OP"),
        "fully_shard(Net(), reshard_after_forward=False)",
    ),
    "ShardingStrategy.NO_SHARD": (STRATEGY.format("NO_SHARD"), "init_device_mesh("),
    "ShardingStrategy.HYBRID_SHARD": (
        STRATEGY.format("HYBRID_SHARD"),
        'mesh_dim_names=("replicate", "shard")',
    ),
    "ShardingStrategy._HYBRID_SHARD_ZERO2": (
        STRATEGY.format("_HYBRID_SHARD_ZERO2"),
        "reshard_after_forward=False",
    ),
    "BackwardPrefetch": ("model = FSDP(Net(), backward_prefetch=None)", "fully_shard(Net())"),
    "BackwardPrefetch.BACKWARD_PRE": (
        "model = FSDP(Net(), backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
        "fully_shard(Net())",
    ),
    "BackwardPrefetch.BACKWARD_POST": (
        "model = FSDP(Net(), backward_prefetch=BackwardPrefetch.BACKWARD_POST)",
        "fully_shard(Net())",
    ),
    "CPUOffload": ("model = FSDP(Net(), cpu_offload=CPUOffload())", "model = fully_shard(Net())"),
    "CPUOffload.offload_params": (
        "model = FSDP(Net(), cpu_offload=CPUOffload(offload_params=True))",
        "offload_policy=CPUOffloadPolicy()",
    ),
    "MixedPrecision": (MIXED.format(""), "mp_policy=MixedPrecisionPolicy()"),
    "MixedPrecision.param_dtype": (
        MIXED.format("torch.bfloat16"),
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
    ),
    "MixedPrecision.reduce_dtype": (
        MIXED.format("reduce_dtype=torch.float32"),
        "MixedPrecisionPolicy(reduce_dtype=torch.float32)",
    ),
    "MixedPrecision.buffer_dtype": (
        MIXED.format("buffer_dtype=torch.bfloat16"),
        "mp_policy=MixedPrecisionPolicy()",
    ),
    "MixedPrecision.keep_low_precision_grads": (
        MIXED.format("keep_low_precision_grads=True"),
        "! no counterpart of `keep_low_precision_grads`",
    ),
    "MixedPrecision.cast_forward_inputs": (
        MIXED.format("torch.float16, cast_forward_inputs=True"),
        "MixedPrecisionPolicy(param_dtype=torch.float16",
    ),
    "MixedPrecision.cast_root_forward_inputs": (
        MIXED.format("torch.float16, cast_root_forward_inputs=True"),
        "MixedPrecisionPolicy(param_dtype=torch.float16",
    ),
    "MixedPrecision._module_classes_to_ignore": (
        MIXED.format("torch.float16, _module_classes_to_ignore=(nn.LayerNorm,)"),
        "! _module_classes_to_ignore",
    ),
    "StateDictType": (TYPES.format("FULL_STATE_DICT"), "full_state_dict=True"),
    "StateDictType.FULL_STATE_DICT": (TYPES.format("FULL_STATE_DICT"), "full_state_dict=True"),
    "StateDictType.SHARDED_STATE_DICT": (
        TYPES.format("SHARDED_STATE_DICT"),
        "state = get_model_state_dict(model)",
    ),
    "StateDictType.LOCAL_STATE_DICT": (
        TYPES.format("LOCAL_STATE_DICT"),
        "state = get_model_state_dict(model)",
    ),
    "StateDictConfig": (
        IMPORT.format("StateDictConfig", "config = StateDictConfig(offload_to_cpu=True)"),
        "! `StateDictOptions`",
    ),
    "FullStateDictConfig": (
        CONFIG.format("FullStateDictConfig", "FULL_STATE_DICT", "True, True"),
        "StateDictOptions(full_state_dict=True, cpu_offload=True)",
    ),
    "ShardedStateDictConfig": (
        CONFIG.format("ShardedStateDictConfig", "SHARDED_STATE_DICT", "offload_to_cpu=True"),
        "StateDictOptions(cpu_offload=True)",
    ),
    "LocalStateDictConfig": (
        CONFIG.format("LocalStateDictConfig", "LOCAL_STATE_DICT", ""),
        "state = get_model_state_dict(model",
    ),
    "OptimStateDictConfig": (
        IMPORT.format("OptimStateDictConfig", "config = OptimStateDictConfig()"),
        "! `StateDictOptions`",
    ),
    "FullOptimStateDictConfig": (
        OPTIMIZER + "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, "
        "FullStateDictConfig(True, True), FullOptimStateDictConfig(True, True)):\n"
        "    state = FSDP.optim_state_dict(model, optimizer)",
        "StateDictOptions(full_state_dict=True, cpu_offload=True)",
    ),
    "ShardedOptimStateDictConfig": (
        "from torch.distributed.fsdp import ShardedOptimStateDictConfig\n"
        + OPTIMIZER
        + "with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT, "
        "ShardedStateDictConfig(), ShardedOptimStateDictConfig()):\n"
        "    state = FSDP.optim_state_dict(model, optimizer)",
        "get_optimizer_state_dict(",
    ),
    "LocalOptimStateDictConfig": (
        IMPORT.format("LocalOptimStateDictConfig", "config = LocalOptimStateDictConfig()"),
        "StateDictOptions()",
    ),
    "StateDictSettings": (
        IMPORT.format("StateDictSettings", "kind = StateDictSettings"),
        "! arguments of each call",
    ),
    "OptimStateKeyType": (
        IMPORT.format("OptimStateKeyType", "kind = OptimStateKeyType.PARAM_NAME"),
        "! names of parameters as keys",
    ),
    "FlatParameter": (
        IMPORT.format("FlatParameter", "print(isinstance(model, FlatParameter))"),
        "! a DTensor with its own name",
    ),
    "ModuleWrapPolicy": (POLICY.format("ModuleWrapPolicy({Block})"), "isinstance(module, Block)"),
    "CustomPolicy": (
        POLICY.format("CustomPolicy(lambda m: isinstance(m, Block))"),
        "isinstance(module, Block)",
    ),
    "always_wrap_policy": (POLICY.format("always_wrap_policy"), "fully_shard("),
    "lambda_auto_wrap_policy": (
        POLICY.format("functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m.training)"),
        "if module.training:",
    ),
    "transformer_auto_wrap_policy": (
        POLICY.format(
            "functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})"
        ),
        "isinstance(module, Block)",
    ),
    "size_based_auto_wrap_policy": (
        POLICY.format("functools.partial(size_based_auto_wrap_policy, min_num_params=100)"),
        "\nshard_large_modules(model, 100)\nfully_shard(model)",
    ),
    "_or_policy": (
        POLICY.format("functools.partial(_or_policy, policies=[ModuleWrapPolicy({Block})])"),
        "isinstance(module, Block)",
    ),
    "_module_wrap_policy": (
        "from torch.distributed.fsdp.wrap import _module_wrap_policy\n"
        + POLICY.format("functools.partial(_module_wrap_policy, module_classes={Block})"),
        "isinstance(module, Block)",
    ),
    "enable_wrap": (
        "with enable_wrap(wrapper_cls=FSDP, limit_all_gathers=True):\n    model = wrap(Net())",
        "\nmodel = fully_shard(Net())",
    ),
    "wrap": (
        "with enable_wrap(wrapper_cls=FSDP):\n"
        "    model = wrap(Net(), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
        "\nmodel = fully_shard(Net(), reshard_after_forward=False)",
    ),
    "ShardedGradScaler": (
        MODEL + 'scaler = ShardedGradScaler("cuda", 2.0)',
        'torch.amp.GradScaler("cuda", init_scale=2.0)',
    ),
    "ShardedGradScaler.process_group": (
        MODEL + "scaler = ShardedGradScaler(process_group=dist.new_group([0]))",
        "! which may be another group",
    ),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_name_becomes_what_the_table_says(name: str, tmp_path: Path) -> None:
    code, expected = PROGRAMS[name]
    found, text = plan(tmp_path, "\n" + code + "\n")
    reasons = [blocker.reason for blocker in found.blockers]
    if expected.startswith("! "):
        assert any(re.search(expected[2:], one) for one in reasons), reasons or text
        assert not any("yet" in one for one in reasons)
        return
    assert not reasons
    assert expected in text[text.index("init_process_group") :]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("process_group", "print(dist.group.WORLD)"),
        ("mixed_precision", "! keep the policy in a variable"),
        ("sharding_strategy", "! keep it in a variable"),
        ("cpu_offload", "! keep the value in a variable"),
        ("backward_prefetch", "! keep the value in a variable"),
        ("forward_prefetch", "! keep the value in a variable"),
        ("limit_all_gathers", "! keep the value in a variable"),
        ("training_state", "! whether its forward or backward runs"),
        ("_is_root", "! the module that the program calls"),
        ("flat_param", "! no flat parameters"),
    ],
)
def test_an_attribute_of_the_wrapper(attribute: str, expected: str, tmp_path: Path) -> None:
    found, text = plan(tmp_path, MODEL + f"print(model.{attribute})\n")
    if expected.startswith("! "):
        assert expected[2:] in found.blockers[0].reason
    else:
        assert expected in text


def test_every_name_has_a_program() -> None:
    assert set(PROGRAMS) == set(APIS)


def public_names() -> set[str]:
    """The names that torch offers, as the table writes them."""
    from torch.distributed import fsdp
    from torch.distributed.fsdp import api, sharded_grad_scaler, wrap

    from fsdplint.migration.names import FSDP2

    names = {*fsdp.__all__, *api.__all__, *wrap.__all__, "FlatParameter"} - FSDP2
    cls = fsdp.FullyShardedDataParallel
    names |= {f"{FSDP}.{n}" for n in inspect.signature(cls).parameters}
    names |= {f"{FSDP}.{n}" for n in vars(cls) if not n.startswith("_")}
    for one in (api.ShardingStrategy, api.StateDictType, api.BackwardPrefetch):
        names |= {f"{one.__name__}.{member.name}" for member in one}
    for config in (api.MixedPrecision, api.CPUOffload):
        names |= {f"{config.__name__}.{field}" for field in inspect.signature(config).parameters}
    assert sharded_grad_scaler.ShardedGradScaler
    return names | {"ShardedGradScaler"}


def test_the_older_home_of_fsdp2_is_known() -> None:
    """`torch.distributed._composable.fsdp` has nothing that FSDP213 does not find elsewhere."""
    from torch.distributed._composable import fsdp

    from fsdplint.migration.names import FSDP2

    assert {name for name in vars(fsdp) if not name.startswith("_")} <= FSDP2


def test_every_public_name_is_in_the_table() -> None:
    assert public_names() - set(APIS) == set()


def test_what_is_inside_of_fsdp1_is_named() -> None:
    assert "internal to FSDP1" in reason("_traversal_utils._get_fsdp_handles").message
    assert "StateDictOptions" in reason("FullStateDictConfig.offload_to_cpu").message


def test_what_is_a_step_of_its_own_has_a_rewriter() -> None:
    from fsdplint.migration import passes  # registers all of them
    from fsdplint.migration.rewriters import member_rewriter, rewriter_of

    assert passes.PASSES
    assert all(rewriter_of(name) for name, api in APIS.items() if api.step)
    assert all(member_rewriter(name) for name in ("rank", "world_size", "process_group", "apply"))
