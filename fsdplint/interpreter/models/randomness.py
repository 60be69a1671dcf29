"""Seeds, and code that sets parameters to values that are not random."""

from __future__ import annotations

import re
from functools import cache

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.rank_local import data_at, local_of, own_data
from fsdplint.interpreter.ranks import is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.seeds import differs_by_rank, note_seed
from fsdplint.interpreter.torch_values import (
    LOCAL_PART,
    GeneratorValue,
    ParametersOf,
    TensorValue,
)
from fsdplint.interpreter.unknown_results import unknown_result
from fsdplint.interpreter.values import (
    Const,
    Context,
    Method,
    ModuleValue,
    Unknown,
    Value,
    constant,
    gathers,
    is_none,
)
from fsdplint.trace import Seeded, WeightsDrawn, WeightsSet

# Unknown functions that may seed the generator, or synchronize the weights of the ranks.
SEEDS = re.compile(r"seed|rng|(?<!use_)determinis", re.I)
SETS = re.compile(r"broadcast|sync|copy|load|scatter|init|share", re.I)
# In-place methods with random values, which differ between ranks if the seeds do.
RANDOM = {"normal_", "uniform_", "trunc_normal_", "random_", "exponential_", "bernoulli_",
          "cauchy_", "log_normal_", "geometric_"}  # fmt: skip


@function("torch.manual_seed", "torch.random.manual_seed", "torch.default_generator.manual_seed",
          "transformers.set_seed", "lightning.seed_everything", "pytorch_lightning.seed_everything",
          "lightning.pytorch.seed_everything", "lightning.fabric.seed_everything")  # fmt: skip
def manual_seed(run: Run, name: str, call: Call) -> Value:
    seed_all(run, name, call, call.arg(0, "seed"))
    return Unknown()


@function("accelerate.utils.set_seed", "accelerate.utils.random.set_seed")
def seed_by_accelerate(run: Run, name: str, call: Call) -> Value:
    """`device_specific=True` adds the rank to the seed."""
    specific = call.arg(1, "device_specific")
    same = (specific is None or constant(specific) is False) and not call.open
    seed_all(run, name, call, call.arg(0, "seed") if same else None)
    return Unknown()


def seed_all(run: Run, name: str, call: Call, seed: Value | None) -> None:
    """Seed the generators of this rank. seed: None if it is not known."""
    note_seed(run, seed)
    differs = differs_by_rank(run, seed)
    each = differs is True and seed is not None and is_distinct(run.settle(seed))
    _note_seeded(run, call, differs, each)
    run.process_seed = seed
    if not name.startswith("torch."):  # it seeds NumPy and Python, too
        run.unseeded.clear()
        run.own_seeds = {"numpy.random", "random"} if differs else set()


def _note_seeded(run: Run, call: Call, per_rank: bool | None, each_rank: bool = False) -> None:
    """The generator of the process has another seed now.

    per_rank: None if it is not known.
    """
    run.draws_own_numbers, run.process_seed = per_rank is True, None
    run.emit(Seeded, call.node, per_rank=per_rank, each_rank=each_rank)


@function(*(f"torch.{device}.{name}" for device in ("cuda", "npu", "xpu")
            for name in ("manual_seed", "manual_seed_all")))  # fmt: skip
def seed_device(run: Run, name: str, call: Call) -> Value:
    """The generator of a device, which makes what is drawn there, has another seed now."""
    if differs_by_rank(run, call.arg(0, "seed")) is not False:
        run.process_seed = None
    return Const(None)


@function("torch.set_rng_state", "torch.seed", "torch.random.set_rng_state", "torch.random.seed")
def seed_out_of_sight(run: Run, name: str, call: Call) -> Value:
    note_seed(run, None)
    _note_seeded(run, call, None)
    return Unknown()


@function("numpy.random.seed", "numpy.random.set_state", "random.seed", "random.setstate")
def seed_library(run: Run, name: str, call: Call) -> Value:
    """The generator of NumPy or Python itself has another seed, or another state, now."""
    note_seed(run, next(iter(call.values), None))
    library = name.rpartition(".")[0]
    run.own_seeds.discard(library)
    run.unseeded.discard(library)
    if differs_by_rank(run, next(iter(call.values), None)) is True:
        run.own_seeds.add(library)
    return Const(None)


@function("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")
def new_number_generator(run: Run, name: str, call: Call) -> Value:
    """A generator of NumPy or Python. What it draws is the rank's own if its seed is."""
    result, seed = unknown_result(call), next(iter(call.values), None)
    if run.decisions.single_rank or call.open:
        return result
    if seed is None or is_none(run.settle(seed)):  # each process has another one
        result.rank_local = own_data(run, run.site(call.node))
        return result
    if differs_by_rank(run, seed) is True:
        result.rank_local = own_data(run, run.site(call.node))
        if is_distinct(run.settle(seed)):
            run.of_each_rank.add(result.rank_local.source)
    position = position_of(run, seed)
    if position is not None:
        result.rank_local = data_at(run, position, run.site(call.node))
    return result


@function("torch.Generator")
def new_generator(run: Run, name: str, call: Call) -> Value:
    return GeneratorValue()


@method("GeneratorValue", "manual_seed")
def seed_generator(run: Run, receiver: GeneratorValue, name: str, call: Call) -> Value:
    receiver.seed, receiver.loop_depth = call.arg(0, "seed"), run.loop_depth
    seed = run.settle(receiver.seed) if receiver.seed is not None else None
    own = position_of(run, seed) is not None or local_of(seed) is not None
    receiver.per_rank = own or differs_by_rank(run, seed) is True
    return receiver


@method("GeneratorValue", "set_state", "seed")
def reseed_generator(run: Run, receiver: GeneratorValue, name: str, call: Call) -> Value:
    receiver.seed, receiver.per_rank = None, False
    return receiver


@function("torch.random.fork_rng")
def fork_rng(run: Run, name: str, call: Call) -> Value:
    """The state of the generator is restored at the end of the block."""
    outer = run.process_seed

    def restore() -> None:
        _note_seeded(run, call, None)
        run.process_seed = outer

    return Context("fork_rng", on_exit=restore)


@cache
def _seeds(name: str) -> bool:
    return SEEDS.search(name) is not None


@cache
def _sets(name: str) -> bool:
    return SETS.search(name) is not None


def note_unknown_call(run: Run, name: str, call: Call) -> None:
    """Record that an unknown function may change the generator or parameters."""
    if _seeds(name):
        run.own_seeds.clear()
        run.unseeded.clear()
        _note_seeded(run, call, None)
    if _sets(name) and name.rpartition(".")[2] != "copy_":  # which only reads its argument
        note_weights_set(run, call.node, call.values)


def note_weights_set(
    run: Run,
    node: cst.CSTNode,
    values: list[Value],
    *,
    same_values: bool = False,
    with_sharded: bool = False,
    rebound: bool = False,
    of_shard: bool = False,
) -> None:
    """Record that the parameters among the values may have new values.

    same_values, with_sharded, rebound, of_shard: see `WeightsSet`.
    """
    modules = [m.id for v in values for m in _owners(v)]
    if modules:
        in_place = all(map(is_parameter_itself, values))
        run.emit(
            WeightsSet,
            node,
            modules=tuple(modules),
            in_place=in_place,
            extent=extent_of(run, values) if in_place else "",
            same_values=same_values,
            with_sharded=with_sharded,
            rebound=rebound,
            of_shard=of_shard,
            summoned=gathers(run.contexts),
        )


def note_weights_drawn(run: Run, node: cst.CSTNode, values: list[Value]) -> None:
    """Record that the parameters among the values have new random values, if that matters."""
    if not _draws_matter(run):
        return
    modules = tuple(one.id for value in values for one in _owners(value))
    if modules and all(map(is_parameter_itself, values)):
        run.emit(WeightsDrawn, node, modules=modules, extent=extent_of(run, values))


def note_reset(run: Run, node: cst.CSTNode, module: ModuleValue) -> None:
    """Record `layer.reset_parameters()`, which draws the own parameters of a layer anew."""
    if _draws_matter(run):
        run.emit(WeightsDrawn, node, modules=(module.id,), extent="own")


def _draws_matter(run: Run) -> bool:
    """Whether only some ranks draw, or have drawn before."""
    return run.ranks().partial or any(True for _ in run.trace.of(WeightsDrawn))


def extent_of(run: Run, values: list[Value]) -> str:
    """Which parameters of their modules the values certainly are, as `WeightsSet` has it."""
    if all(isinstance(value, ParametersOf) and value.name for value in values):
        return "own"
    every = all(
        isinstance(one, ParametersOf) and one.each and not one.filtered_by for one in values
    )
    skips = bool(run.own_turns) and run.own_turns[-1].left  # `if name in frozen: continue`
    return "all" if every and not skips else ""


def is_parameter_itself(value: Value) -> bool:
    """Whether a value is a parameter, read as an attribute or in a loop, and no copy of it."""
    if not isinstance(value, ParametersOf) or value.unsharded_copy or value.derived:
        return False
    return value.element or bool(value.name)


def _owners(value: Value) -> tuple[ModuleValue, ...]:
    """The modules whose parameters a value is, also as `parameter.data` or a local part."""
    if isinstance(value, Method):
        value = value.receiver
    if isinstance(value, TensorValue) and value.source in ("local", "parameter", LOCAL_PART):
        return value.modules
    return value.modules if isinstance(value, ParametersOf) else ()
