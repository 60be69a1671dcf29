"""The options of a sharding as those of FSDP2, whichever FSDP shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fsdplint.comparison.facts import same_argument
from fsdplint.migration.constructor.strategy import HYBRID, NO_RESHARD
from fsdplint.migration.names import PARAMETERS, STRATEGIES
from fsdplint.trace.arguments import (
    MESH_PART,
    Argument,
    Arguments,
    Built,
    Constant,
    Named,
    OneOf,
    Opaque,
    SomeOf,
)

RESHARD = "reshard_after_forward"
MESH = "mesh"
OF_STRATEGY = frozenset({RESHARD, MESH})  # the options that a strategy decides about
NOTHING = Constant(None)
_COLLECTIONS = {"list", "tuple", "set", "frozenset"}
ALL_RANKS = Built("mesh", (("0", Constant("all ranks")),))
REPLICATED = Built("mesh", (("0", Constant("all ranks")), ("1", Constant(1))))
# Of a group's mesh, what only its number of dimensions says.
TWO_DIMENSIONS = Built("mesh", (("0", Opaque()), ("1", Opaque())))

Options = dict[str, Argument]


def of_fsdp1(arguments: Arguments, *, root: bool, possible: Sequence[str] | None = None) -> Options:
    """The options that `FullyShardedDataParallel(...)` stands for.

    possible: the strategies that the run may have where the strategy is unknown; None for any.
    """
    found = _by_parameter(arguments)
    strategy = strategy_of(arguments)
    strategies = [strategy] if strategy is not None else possible or STRATEGIES
    return {
        RESHARD: _any_of(_reshard_of_strategy(one, root=root) for one in strategies),
        MESH: _mesh_of_fsdp1(found, strategies),
        **_precision_of_fsdp1(_passed_argument(found, "mixed_precision"), root=root),
        "offload to the CPU": _offload_of_fsdp1(_passed_argument(found, "cpu_offload")),
        "ignored parameters": _ignored_of_fsdp1(found),
    }


def of_fsdp2(arguments: Arguments, *, root: bool) -> Options:
    """The options of `fully_shard(...)`."""
    reshard = _passed_argument(arguments, RESHARD)
    return {
        RESHARD: Constant(not root) if reshard == NOTHING else reshard,
        MESH: _mesh(_passed_argument(arguments, "mesh")),
        **_precision_of_fsdp2(_passed_argument(arguments, "mp_policy"), root=root),
        "offload to the CPU": _offload_of_fsdp2(_passed_argument(arguments, "offload_policy")),
        "ignored parameters": _presence(_passed_argument(arguments, "ignored_params")),
    }


def strategy_of(arguments: Arguments) -> str | None:
    """The strategy of `FullyShardedDataParallel(...)`; None if it is unknown."""
    return _strategy(_passed_argument(_by_parameter(arguments), "sharding_strategy"))


def _by_parameter(arguments: Arguments) -> Arguments:
    given = {_parameter(name): value for name, value in arguments.given.items()}
    return Arguments(given, arguments.complete)


def _parameter(name: str) -> str:
    return PARAMETERS[int(name)] if name.isdecimal() and int(name) < len(PARAMETERS) else name


def _passed_argument(arguments: Arguments, name: str) -> Argument:
    return arguments.get(name) or NOTHING


# Strategy and mesh ----------------------------------------------------------------------------


def _strategy(value: Argument) -> str | None:
    """The name of a strategy; None if it is unknown."""
    if value == NOTHING:
        return STRATEGIES[0]
    last = value.name.rpartition(".")[2] if isinstance(value, Named) else ""
    return last if last in STRATEGIES else None


def _any_of(values: Iterable[Argument]) -> Argument:
    """One of some values."""
    found = tuple(dict.fromkeys(values))
    return found[0] if len(found) == 1 else SomeOf(found)


def _reshard_of_strategy(strategy: str, *, root: bool) -> Argument:
    if strategy == "NO_SHARD":  # each rank has all parameters in any case
        return OneOf((Constant(True), Constant(False)))
    if strategy in NO_RESHARD:
        return Constant(False)
    # FSDP1 keeps the parameters of the root in any case; `True` says what the strategy says.
    return OneOf((Constant(True), Constant(False))) if root else Constant(True)


def _mesh_of_fsdp1(found: Arguments, strategies: Iterable[str]) -> Argument:
    mesh, group = _passed_argument(found, "device_mesh"), _passed_argument(found, "process_group")
    if mesh != NOTHING:
        return _mesh(mesh)
    if group != NOTHING:
        return Opaque()
    return _any_of(_mesh_of_strategy(one) for one in strategies)


def _mesh_of_strategy(strategy: str) -> Argument:
    if strategy in HYBRID:
        return TWO_DIMENSIONS
    return REPLICATED if strategy == "NO_SHARD" else ALL_RANKS


def against_strategies(options: Options, possible: Sequence[str], *, root: bool) -> Iterator[str]:
    """The options of FSDP2 that none of some strategies has, for a run that can only have these."""
    expected = {
        RESHARD: [_reshard_of_strategy(one, root=root) for one in possible],
        MESH: [_mesh_of_strategy(one) for one in possible],
    }
    for name, values in expected.items():
        if values and all(same_argument(one, options[name]) is False for one in values):
            yield f"{name} {options[name]}"


def _mesh(value: Argument) -> Argument:
    """The sizes of a mesh. That of one dimension has all ranks."""
    if value == NOTHING:
        return ALL_RANKS
    if isinstance(value, Built) and value.name == MESH_PART:
        return _mesh_part(value)
    if not isinstance(value, Built) or not value.name.endswith(".init_device_mesh"):
        return Opaque(code=str(value))
    shape = value.get("mesh_shape", "1")
    if not isinstance(shape, Built) or not shape.complete:
        return Opaque(code=str(value))
    if len(shape.items) == 1:
        return ALL_RANKS
    return REPLICATED if shape.get("1") == Constant(1) else Built("mesh", shape.items)


def _mesh_part(value: Built) -> Argument:
    """A part of a mesh, `mesh["shard"]`, which has the ranks of some of its dimensions."""
    whole, chosen = value.get("whole"), value.get("chosen")
    if not isinstance(whole, Built) or chosen is None:
        return Opaque(code=str(value))
    shape, names = whole.get("mesh_shape", "1"), whole.get("mesh_dim_names", "2")
    if not isinstance(shape, Built) or not isinstance(names, Built):
        return Opaque(code=str(value))
    kept = {chosen} if isinstance(chosen, Constant) else {part for _, part in _items(chosen)}
    if len(names.items) != len(shape.items):
        return Opaque(code=str(value))
    pairs = zip(names.items, shape.items, strict=True)
    sizes = {name: size for (_, name), (_, size) in pairs}
    if not kept <= sizes.keys():
        return Opaque(code=str(value))
    if kept == sizes.keys():
        return _mesh(whole)
    left_out = [size for name, size in sizes.items() if name not in kept]
    of_size_one = all(size == Constant(1) for size in left_out)
    shared = any(isinstance(size, Constant) and size != Constant(1) for size in left_out)
    part = tuple((str(n), name) for n, name in enumerate(sizes) if name in kept)
    if of_size_one or not shared:
        return Opaque(code=str(value))  # the other dimensions may have one rank each
    return Built("part of a mesh", part)


def _items(value: Argument) -> tuple[tuple[str, Argument], ...]:
    return value.items if isinstance(value, Built) else ()


# Precision ----------------------------------------------------------------------------------------


def _precision_of_fsdp1(value: Argument, *, root: bool) -> Options:
    if value == NOTHING:
        return _precision(NOTHING, NOTHING, NOTHING, Constant(True), NOTHING, root=root)
    if not isinstance(value, Built):
        return _unknown_precision()
    found = Arguments(dict(value.items), value.complete)
    cast = found.get("cast_root_forward_inputs", "5") or Constant(True)
    if found.get("cast_forward_inputs", "4") == Constant(True):
        cast = Constant(True)  # the root casts its inputs as any other unit does
    return _precision(
        found.get("param_dtype", "0") or NOTHING,
        found.get("reduce_dtype", "1") or NOTHING,
        found.get("buffer_dtype", "2") or NOTHING,
        cast,
        NOTHING,
        root=root,
    )


def _precision_of_fsdp2(value: Argument, *, root: bool) -> Options:
    if value == NOTHING:
        return _precision(NOTHING, NOTHING, Opaque(), Constant(True), NOTHING, root=root)
    if not isinstance(value, Built):
        return _unknown_precision()
    found = Arguments(dict(value.items), value.complete)
    return _precision(
        found.get("param_dtype", "0") or NOTHING,
        found.get("reduce_dtype", "1") or NOTHING,
        Opaque(),
        found.get("cast_forward_inputs", "3") or Constant(True),
        found.get("output_dtype", "2") or NOTHING,
        root=root,
    )


def _unknown_precision() -> Options:
    return {name: Opaque() for name in ("param_dtype", "reduce_dtype", "output_dtype")}


def _precision(
    param: Argument,
    reduce: Argument,
    buffers: Argument,
    cast: Argument,
    output: Argument,
    *,
    root: bool,
) -> Options:
    """Both reduce gradients in the type of the parameters where no other type is given."""
    found = {
        "param_dtype": param,
        "reduce_dtype": param if reduce == NOTHING else reduce,
        "output_dtype": output,
    }
    if buffers != NOTHING and not isinstance(buffers, Opaque):
        found["buffer_dtype"] = buffers
    if root and param != NOTHING:
        found["cast_forward_inputs"] = cast
    return found


# Offload and ignored parameters -------------------------------------------------------------------


def _offload_of_fsdp1(value: Argument) -> Argument:
    if value == NOTHING:
        return Constant(False)
    if isinstance(value, Built) and value.complete:
        return value.get("offload_params", "0") or Constant(False)
    return Opaque(code=str(value))


def _offload_of_fsdp2(value: Argument) -> Argument:
    if value == NOTHING:
        return Constant(False)
    if isinstance(value, Built):
        return Constant(value.name.endswith(".CPUOffloadPolicy"))
    return Opaque(code=str(value))


def _ignored_of_fsdp1(found: Arguments) -> Argument:
    modules = _passed_argument(found, "ignored_modules")
    if modules != NOTHING:
        return _presence(modules)
    states = _passed_argument(found, "ignored_states")
    if states == NOTHING:
        states = _passed_argument(found, "ignored_parameters")  # the name in torch 2.0
    # Tests of parameters choose most such states, so that an empty collection may have some.
    return Constant("some") if _is_empty(states) else _presence(states)


def _presence(value: Argument) -> Argument:
    """Whether some parameters are ignored; which ones is not compared."""
    if value == NOTHING:
        return Constant("none")
    if _is_empty(value):
        return OneOf((Constant("none"), Constant("some")))
    return Opaque(code=str(value)) if isinstance(value, Opaque) else Constant("some")


def _is_empty(value: Argument) -> bool:
    """Whether a value is certainly a collection without elements."""
    collection = isinstance(value, Built) and value.name in _COLLECTIONS and value.complete
    return collection and not _items(value)
