"""What makes the results of calls, methods and forwards different on each rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fsdplint.interpreter import cut_samples
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.local_libraries import computes_within_process
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.method_names import attribute_name
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.rank_local import (
    NEW_VALUES,
    STRUCTURE,
    derive_rank_local,
    length_of_selection,
    local_of,
    own_data,
    own_truth,
)
from fsdplint.interpreter.ranks import is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    GeneratorValue,
    MeshPosition,
    RankValue,
    TensorValue,
)
from fsdplint.interpreter.unseeded import is_unseeded
from fsdplint.interpreter.values import (
    Dict,
    LibraryObject,
    Method,
    RankLocal,
    Sequence,
    Symbol,
    Unknown,
    Value,
    constant,
    is_none,
)
from fsdplint.trace import Collective, Event

CLOCKS = frozenset(
    "time.time time.time_ns time.perf_counter time.perf_counter_ns time.monotonic "
    "time.monotonic_ns time.process_time datetime.datetime.now datetime.datetime.utcnow".split()
)
# Functions whose results are other ones in each process.
_NAMES_OF_PROCESSES = frozenset(
    "os.getpid os.urandom secrets.token_bytes secrets.token_hex secrets.token_urlsafe "
    "tempfile.mkdtemp tempfile.mktemp uuid.uuid1 uuid.uuid4".split()
)
# `shard(number, index)` of a dataset, and the function of Hugging Face's `datasets`.
_PARTS = frozenset({"shard", "datasets.distributed.split_dataset_by_node"})
_PATHS = frozenset("os.path.join os.path.abspath os.fspath pathlib.Path builtins.str".split())
_COMPUTES = _PATHS | frozenset(
    f"builtins.{name}"
    for name in "abs all any bool bytearray bytes chr divmod float int max memoryview min ord pow "
    "round sum".split()
)
_COMPUTING = ("torch.",)
COMMUNICATES = ("torch.distributed.", "torch.cuda.", "torch.utils.", "torch.optim.")
# Methods of a tensor that return a number or tensor with memory of its own.
_COPIES = frozenset("any all clone item max mean min norm sum tolist".split())
_OF_TEXT = frozenset({"format", "join"})  # methods of a text that put others into it
# Functions and methods of which the result has as many elements as the values of a tensor say.
_SELECTS = frozenset(
    "argwhere extract flatnonzero masked_select nonzero unique unique_consecutive".split()
)
_SIZES = frozenset("nelement numel".split())  # methods that count the elements
# Functions and methods that give one number for all elements, unless they get a dimension.
_REDUCES = frozenset(
    "all amax amin any count_nonzero dist dot item logsumexp max mean median "
    "min nanmean nansum norm prod std sum var vector_norm".split()
)
_TAKES_ORDER = frozenset({"norm", "vector_norm"})  # of a norm
# Functions of torch that draw random numbers.
_DRAWS = frozenset(
    "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like "
    "randperm".split()
)
_ORDERS = frozenset({"permutation", "randperm"})
_KEEPS_ORDER = frozenset("cpu cuda int long numpy to tolist".split())
# Functions of `random` and `numpy.random` that draw none.
_DRAWS_NOTHING = frozenset(
    "default_rng Generator MT19937 PCG64 Philox Random RandomState seed SeedSequence set_state "
    "setstate shuffle".split()
)
_SERIALIZES = frozenset({"json.dumps", "pickle.dumps", "cloudpickle.dumps"})
MAX_DEPTH = 3  # of lists and dicts in others
_STATE = "get_rng_state"  # of the generator of torch, as a tensor
_AGREED = frozenset({"full_tensor", "redistribute"})  # methods that communicate


def through_call(run: Run, function: Value, call: Call, result: Value, begin: int) -> None:
    """Mark the new result of a call. `begin`: the number of events before it."""
    if not run.has_own_data and not _begins(function, call):
        return
    cut_samples.note_call(run, function, result)
    owner = function.owner if isinstance(function, Unknown) else None
    if owner is not None and isinstance(function, Unknown) and attribute_name(function) == "seed":
        owner.rank_local = None  # a generator, which has another seed now
    if not isinstance(result, Unknown | TensorValue) or result.created_at is not None:
        return
    if result.rank_local is not None:
        return
    if isinstance(result, Unknown) and isinstance(function, Unknown) and not call.values:
        _mark_items(function, result)
    result.rank_local = _of_result(run, function, call, begin)
    if isinstance(result, Unknown) and result.rank_local is not None:
        result.own_order = _draws_order(function)


def _draws_order(function: Value) -> bool:
    """Whether a call gives a random order, or the same order in another form."""
    if isinstance(function, Symbol):
        return function.name.rpartition(".")[2] in _ORDERS
    if not isinstance(function, Unknown) or function.owner is None:
        return False
    return attribute_name(function) in (_KEEPS_ORDER if function.owner.own_order else _ORDERS)


def _begins(function: Value, call: Call) -> bool:
    """Whether a call gives the rank data of its own."""
    own = _reads_clock(function, call) or _takes_part(function, call) or draws(function)
    return own or names_process(function)


def draws(function: Value) -> bool:
    """Whether a function draws random numbers, or gives the state that the next ones come from."""
    library, _, name = _generator_of(function).rpartition(".")
    if library in ("numpy.random", "random"):
        return name not in _DRAWS_NOTHING
    return library == "torch" and name in (*_DRAWS, _STATE)


def _generator_of(function: Value) -> str:
    """The name of a library function; that of the generator of a device has a place in `torch`."""
    name = function.name if isinstance(function, Symbol) else ""
    of_device = name in (f"torch.random.{_STATE}", f"torch.cuda.{_STATE}")
    return f"torch.{_STATE}" if of_device else name


def _draws_own(run: Run, function: Value, call: Call) -> bool:
    """Whether the generator of a call certainly has another seed on each rank."""
    library = _generator_of(function).rpartition(".")[0]
    if library != "torch":
        return library in run.own_seeds or is_unseeded(run, library)
    given = call.kwargs.get("generator")
    generator = run.settle(given) if given is not None else None
    if generator is None or is_none(generator):
        return run.draws_own_numbers and not call.open
    return isinstance(generator, GeneratorValue) and generator.per_rank


def _position_of_seed(run: Run, call: Call) -> MeshPosition | None:
    """The position in a mesh of which the seed of a generator is computed."""
    return position_of(run, _seed_of(run, call))


def _seed_of(run: Run, call: Call) -> Value | None:
    """The seed of the generator that a call gets; None if it is not known."""
    given = call.kwargs.get("generator")
    generator = run.settle(given) if given is not None else None
    if not isinstance(generator, GeneratorValue) or generator.seed is None:
        return None
    return run.settle(generator.seed)


def _has_distinct_seed(run: Run, call: Call) -> bool:
    """Whether the generator that a call gets has certainly another seed on each of all ranks."""
    seed = _seed_of(run, call)
    return seed is not None and is_distinct(seed)


def _takes_part(function: Value, call: Call) -> bool:
    """Whether a library takes the part of a dataset that is the rank's."""
    name = function.name if isinstance(function, Symbol) else ""
    if isinstance(function, Unknown) and function.owner is not None:
        name = attribute_name(function)
    by_rank = call.arg(1, "index" if name == "shard" else "rank")
    return name in _PARTS and isinstance(by_rank, RankValue)


def is_global_rank(value: Value | None) -> bool:
    """Whether a value is the number of this rank among all ranks."""
    return isinstance(value, RankValue) and value.scope == "global"


def _reads_clock(function: Value, call: Call) -> bool:
    if not isinstance(function, Symbol):
        return False
    now = function.name in ("time.strftime", "time.ctime") and len(call.values) < 2
    return now or function.name in CLOCKS


def names_process(function: Value) -> bool:
    """Whether the result of a function is another one in each process."""
    return isinstance(function, Symbol) and function.name in _NAMES_OF_PROCESSES


def _mark_items(function: Unknown, result: Unknown) -> None:
    """`batch.items()` yields names, which are the same on all ranks, and values, which are not."""
    local = local_of(function.owner)
    if local is not None and attribute_name(function) == "items":
        pair: list[Value] = [Unknown(varying=True), Unknown(varying=True, rank_local=local)]
        result.parts["[]"] = Sequence(pair, "tuple")


def _of_result(run: Run, function: Value, call: Call, begin: int) -> RankLocal | None:
    if _takes_part(function, call) and not run.decisions.single_rank:
        return own_data(run, run.site(call.node), part=any(map(is_global_rank, call.values)))
    if isinstance(function, Symbol):
        if _reads_clock(function, call) and not run.decisions.single_rank:
            run.clocks.add(run.site(call.node))
            return own_data(run, run.site(call.node), immutable=True)
        if names_process(function) and not run.decisions.single_rank:
            run.names_of_processes.add(run.site(call.node))
            return own_data(run, run.site(call.node), immutable=True)
        if draws(function) and _draws_own(run, function, call) and not run.decisions.single_rank:
            seeded = derive_rank_local(_seed_of(run, call))
            if seeded is not None:
                return RankLocal(seeded.source)
            own = own_data(run, run.site(call.node))
            run.drawn.add(own.source)
            if _has_distinct_seed(run, call):
                run.of_each_rank.add(own.source)
            position = _position_of_seed(run, call)
            if position is not None:
                run.split_by[own.source] = position
            return own
        if function.name in _SERIALIZES:
            return derive_rank_local(
                *(part for one in call.values for part in elements_in(run, one))
            )
        if not computes(function.name) and function.name != "builtins.open":
            return None
        if function.name == "builtins.bool" and own_truth(next(iter(call.args), None)) is None:
            return None
        local = derive_rank_local(*call.values, *call.spread)
        if function.name == "builtins.sum" and local is None and call.args:
            local = own_length(run.settle(call.args[0]))  # `sum(1 for x in scores if x > 0)`
        last = function.name.rpartition(".")[2]
        if local is not None and function.name == "builtins.float":
            local.number = True
        elif local is not None and function.name.startswith("torch."):
            local.number |= _gives_number(last, call.values[1:]) and "dim" not in call.kwargs
        if last in _SELECTS or (function.name == "torch.where" and len(call.values) == 1):
            return _of_selection(local)
        return local
    if any(isinstance(event, Collective) for event in run.trace.events[begin:]):
        return None
    if isinstance(function, LibraryObject):
        return derive_rank_local(*call.values, *call.spread) if function.is_loss else None
    if isinstance(function, Method):
        if function.name in _OF_TEXT and isinstance(constant(function.receiver), str):
            return derive_rank_local(*call.values)
        return of_method(function.receiver, function.name, call.values)
    if isinstance(function, Unknown) and computes_within_process(function.library):
        if attribute_name(function) in STRUCTURE:
            return None
        return derive_rank_local(function.owner, *call.values, *call.spread)
    if isinstance(function, Unknown) and function.owner is not None:
        name = attribute_name(function)
        return of_method(function.owner, name, call.values if name == "size" else ())
    return None


def of_method(receiver: Value, name: str, values: Iterable[Value]) -> RankLocal | None:
    """What makes the result of a method of a tensor or batch different on each rank."""
    if not isinstance(receiver, Unknown | TensorValue):
        return None
    local = local_of(receiver)
    if name in _SIZES or (name == "size" and [constant(value) for value in values] == [0]):
        return length_of_selection(local)
    if name in _SELECTS:
        return _of_selection(local)
    if name in STRUCTURE or name in NEW_VALUES or name in _AGREED:
        return None
    if name in _COPIES:
        local = derive_rank_local(receiver, *values)
        if local is not None:
            local.immutable |= name in ("item", "tolist")
            local.number |= _gives_number(name, values)
        return local
    if local is not None and _gives_number(name, values):
        return replace(local, number=True)
    return local or derive_rank_local(*values)


def elements_in(run: Run, value: Value, depth: int = 0) -> Iterator[Value]:
    """A value, and the elements of a list or dict."""
    value = run.settle(value)
    yield value
    held: Iterable[Value] = ()
    if depth < MAX_DEPTH and isinstance(value, Sequence | Dict):
        held = value.items.values() if isinstance(value, Dict) else value.items
    for one in held:
        yield from elements_in(run, one, depth + 1)


def _gives_number(name: str, arguments: Iterable[Value]) -> bool:
    """Whether a function or method certainly gives one number for all elements of a tensor."""
    return name in _REDUCES and len(list(arguments)) <= (1 if name in _TAKES_ORDER else 0)


def _of_selection(local: RankLocal | None) -> RankLocal | None:
    """What makes elements different on each rank, and their number, that the data choose."""
    return replace(local, counts=True, selected=True) if local is not None else None


def of_forward(run: Run, call: Call, event: Event) -> RankLocal | None:
    """What makes the output of a forward different on each rank: its inputs do, and it gathers
    nothing."""
    inside = run.trace.events[event.index :]
    if any(isinstance(one, Collective) for one in inside):
        return None
    return derive_rank_local(*call.values, *call.spread)


def computes(name: str) -> bool:
    """Whether a function computes a number or tensor of the values that it gets."""
    last = name.rpartition(".")[2]
    if last in STRUCTURE or last in NEW_VALUES or last.endswith("_like"):
        return False
    known = computes_within_process(name) or name.startswith(_COMPUTING)
    return name in _COMPUTES or (known and not name.startswith(COMMUNICATES))
