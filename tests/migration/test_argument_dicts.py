"""Dicts of arguments that several calls spread, or that are made elsewhere than the call."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import migrated, plan

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
    "a function with an effect that comes later": """
        def options():
            print("options")
            return dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


        model = FSDP(Net(), **options())
    """,
    "a dict that may be left out": """
        def shard(model, options={}):
            return FSDP(model, **options)


        model = shard(Net())
    """,
    "a dict that another function gets": """
        from library import change

        options = dict(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
        change(options)
        model = FSDP(Net(), **options)
        other = FSDP(Net(), **options)
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
