"""Values that each rank computes from its own data, so that a test of one differs between ranks.

The data of a rank are the batches that a sampler or a slice gives to it, its clock, and random
numbers that torch draws after each rank has set a seed of its own. A value is
rank-local only if that is certain: a library function keeps it if it computes a number or tensor
without communication, and every unknown function loses it. A collective clears it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.mesh_positions import position_of
from fsdplint.interpreter.own_lengths import own_length
from fsdplint.interpreter.ranks import is_distinct
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    GeneratorValue,
    LoaderValue,
    MeshPosition,
    RankChoice,
    RankValue,
    TensorValue,
)
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
from fsdplint.source.source import NodeSite
from fsdplint.trace import Collective, Event, Split

MAX_DEPTH = 2  # of nested lists and dicts
MAX_ITEMS = 8  # of a list that are looked at, from its end

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
    for name in "abs all any bool bytes chr divmod float int max min ord pow round sum".split()
)
# Libraries whose objects turn texts into numbers and back.
_TOKENIZES = re.compile(r"(tiktoken|tokenizers|sentencepiece|transformers\.\w*Tokenizer\w*)\.")
_COMPUTING = ("torch.", "math.", "numpy.", "statistics.")
COMMUNICATES = ("torch.distributed.", "torch.cuda.", "torch.utils.", "torch.optim.")
# Functions and methods of which the result does not depend on the elements of a tensor.
STRUCTURE = frozenset(
    "device dim dtype element_size get_device is_contiguous is_cuda is_floating_point is_tensor "
    "items keys layout nbytes ndim ndimension nelement numel requires_grad result_type shape size "
    "stride".split()
)
_NEW_VALUES = frozenset("empty full new_empty new_full new_ones new_zeros ones zeros".split())
# Methods of a tensor that return a number or tensor with memory of its own.
_COPIES = frozenset("any all clone item max mean min norm sum tolist".split())
# Functions and methods of which the result has as many elements as the values of a tensor say.
_OF_TEXT = frozenset({"format", "join"})  # methods of a text that put others into it
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
_DRAWS_NOTHING = frozenset("get_state getstate seed set_state setstate shuffle".split())
_AGREED = frozenset({"full_tensor", "redistribute"})  # methods that communicate


def local_of(value: Value | None, depth: int = 0) -> RankLocal | None:
    """What makes a value, or an element of it, different on each rank; None if nothing certain."""
    if isinstance(value, Unknown | TensorValue):
        local = value.rank_local or _of_elements(value) or _of_choice(value, depth)
        return local if local is not None and not local.agreed else None
    if depth > MAX_DEPTH:
        return None
    found = (local_of(part, depth + 1) for part in _parts(value))
    return next((local for local in found if local is not None), None)


def _of_choice(value: Unknown | TensorValue, depth: int) -> RankLocal | None:
    """What makes one of two values different on each rank between which a test of the rank chooses:
    the other one, on the other ranks, is not the same."""
    if not isinstance(value, RankChoice) or value.agreed or value.test is None:
        return None
    if depth > MAX_DEPTH:
        return None
    return local_of(value.one, depth + 1) or local_of(value.two, depth + 1)


def _of_elements(value: Unknown | TensorValue) -> RankLocal | None:
    """What makes elements of a new tensor different on each rank: `sums[0] += loss`."""
    library, _, name = value.library.rpartition(".") if isinstance(value, Unknown) else ("", "", "")
    if library != "torch" or not (name in _NEW_VALUES or name == "tensor"):
        return None
    assert isinstance(value, Unknown)
    elements = [part for key, part in value.parts.items() if key.startswith("[")]
    return next((local for one in elements if (local := local_of(one)) is not None), None)


def _parts(value: Value | None) -> Iterable[Value]:
    if isinstance(value, Sequence):
        return value.items[-MAX_ITEMS:]
    if isinstance(value, Dict):
        return list(value.items.values())[-MAX_ITEMS:]
    if isinstance(value, LibraryObject) and value.name.startswith("torch.utils.data."):
        return value.args.values()
    return ()


def of_every_element(value: Dict) -> RankLocal | None:
    """What makes an element of a dict different on each rank, whichever it is."""
    found = [local_of(item) for item in value.items.values()]
    return found[0] if found and value.open and None not in found else None


def derive_rank_local(*values: Value | None) -> RankLocal | None:
    """What makes a new value different on each rank that is computed from these."""
    found = [local for value in values if (local := local_of(value)) is not None]
    if not found:
        return None
    return RankLocal(
        found[0].source,
        immutable=all(local.immutable for local in found),
        part=any(local.part for local in found),
        position=all(local.position for local in found),
        number=all(map(_is_number, found)),
    )


def own_number_of(value: Value | None) -> RankLocal | None:
    """What makes a value different on each rank, if it certainly is one number for many elements.

    A tensor with an element for each one that it is multiplied by, such as a mask, is none, and
    numbers that derive from the rank alone may be the elements of one.
    """
    local = local_of(value)
    if local is None or _is_number(local):
        return local
    is_loss = isinstance(value, TensorValue) and value.source == "output"
    return local if is_loss else None


def _is_number(local: RankLocal) -> bool:
    return local.number or (local.immutable and not local.position)


def own_of_each_rank(run: Run, *values: Value | None) -> NodeSite | None:
    """Where each of all ranks certainly gets data of its own from which values are computed.

    None if ranks may get the same, such as those of one tensor parallel group.
    """
    for value in values:
        local = local_of(value)
        if local is not None and (local.part or local.source in run.of_each_rank):
            return local.source
    return None


def read_from(value: Unknown | TensorValue, name: str) -> RankLocal | None:
    """What makes an attribute or element of a value different on each rank."""
    return None if name in STRUCTURE else value.rank_local


def own_data(
    run: Run,
    source: NodeSite,
    *,
    immutable: bool = False,
    counts: bool = False,
    part: bool = False,
    position: bool = False,
) -> RankLocal:
    """Data that each rank gets for itself at a place."""
    run.has_own_data = True
    return RankLocal(source, immutable, counts=counts, part=part, position=position)


def data_at(run: Run, at: MeshPosition, source: NodeSite, **marks: bool) -> RankLocal:
    """Data that the rank gets because of its position in a mesh. marks: as for `own_data`."""
    run.split_by[source] = at
    return own_data(run, source, **marks)


def split_of(run: Run, *values: Value | None) -> Split | None:
    """What chose the data from which values are computed, if a position in a mesh did."""
    for value in values:
        local = local_of(value)
        at = run.split_by.get(local.source) if local is not None else None
        if local is not None and at is not None:
            return Split(at.mesh, at.dimension, local.source)
    return None


def elements_of_part(value: Sequence, part: RankLocal) -> list[Value]:
    """The elements of the part of a list that each rank takes.

    part: where it is taken. Only elements that stand for others, too, certainly differ by rank.
    """
    if not value.open:
        return list(value.items)
    own = RankLocal(part.source, part=part.part)
    return [_of_part(item, own) for item in value.items]


def _of_part(item: Value, own: RankLocal) -> Value:
    if isinstance(item, Sequence):
        return replace(item, items=[_of_part(one, own) for one in item.items])
    plain = isinstance(item, Unknown) and not item.origin and item.part_of is None
    if plain and isinstance(item, Unknown) and local_of(item) is None:
        return replace(item, parts={}, varying=True, rank_local=own)
    return item


def of_loader(run: Run, loader: LoaderValue, node: cst.CSTNode) -> RankLocal | None:
    """What makes the batches of a loader different on each rank."""
    if run.decisions.single_rank:
        return None
    if loader.own_parts or (loader.sampler is not None and loader.sampler.splits):
        own = own_data(run, loader.created_at or run.site(node))
        if loader.position is not None:
            run.split_by[own.source] = loader.position
        if loader.over_all or (loader.sampler is not None and loader.sampler.over_all):
            run.of_each_rank.add(own.source)
        return own
    held = local_of(loader.dataset)
    return RankLocal(held.source) if held is not None else None


def batch_of(run: Run, loader: LoaderValue, node: cst.CSTNode) -> Unknown:
    """A batch of a loader."""
    local = of_loader(run, loader, node)
    batch = Unknown(varying=True, rank_local=local)
    if local is not None:
        local.batch = batch
        for key, dimension in loader.padded.items():
            batch.parts[key] = Unknown(varying=True, rank_local=local)
            run.padded[batch.parts[key]] = dimension
    return batch


def is_batch(value: Value) -> bool:
    """Whether a value is a batch of a loader. Its truth only says that there is one."""
    return isinstance(value, Unknown) and (
        value.rank_local is not None and value.rank_local.batch is value
    )


def own_truth(value: Value | None) -> RankLocal | None:
    """What makes the truth of a value different on each rank; None if nothing certain.

    That of a list is its length, and not its elements.
    """
    if isinstance(value, Sequence | Dict):
        return own_length(value)
    return None if value is None or is_batch(value) else local_of(value)


def through_call(run: Run, function: Value, call: Call, result: Value, begin: int) -> None:
    """Mark the new result of a call. `begin`: the number of events before it."""
    if not run.has_own_data and not _begins(function, call):
        return
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
    return own or _names_process(function)


def draws(function: Value) -> bool:
    """Whether a function of torch draws random numbers."""
    if not isinstance(function, Symbol):
        return False
    library, _, name = function.name.rpartition(".")
    if library in ("numpy.random", "random"):
        return name not in _DRAWS_NOTHING
    return library == "torch" and name in _DRAWS


def _draws_own(run: Run, function: Value, call: Call) -> bool:
    """Whether the generator of a call certainly has another seed on each rank."""
    library = function.name.rpartition(".")[0] if isinstance(function, Symbol) else ""
    if library != "torch":
        return library in run.own_seeds
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


def _names_process(function: Value) -> bool:
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
        if _names_process(function) and not run.decisions.single_rank:
            run.names_of_processes.add(run.site(call.node))
            return own_data(run, run.site(call.node), immutable=True)
        if draws(function) and _draws_own(run, function, call) and not run.decisions.single_rank:
            seeded = derive_rank_local(_seed_of(run, call))
            if seeded is not None:
                return RankLocal(seeded.source)
            own = own_data(run, run.site(call.node))
            if _has_distinct_seed(run, call):
                run.of_each_rank.add(own.source)
            position = _position_of_seed(run, call)
            if position is not None:
                run.split_by[own.source] = position
            return own
        if not computes(function.name):
            return None
        if function.name == "builtins.bool" and own_truth(next(iter(call.args), None)) is None:
            return None
        local = derive_rank_local(*call.values, *call.spread)
        last = function.name.rpartition(".")[2]
        if local is not None and function.name == "builtins.float":
            local.number = True
        elif local is not None and function.name.startswith("torch."):
            local.number |= _gives_number(last, call.values[1:]) and "dim" not in call.kwargs
        if last in _SELECTS or (function.name == "torch.where" and len(call.values) == 1):
            return _selected(local)
        return local
    if any(isinstance(event, Collective) for event in run.trace.events[begin:]):
        return None
    if isinstance(function, LibraryObject):
        return derive_rank_local(*call.values, *call.spread) if function.is_loss else None
    if isinstance(function, Method):
        if function.name in _OF_TEXT and isinstance(constant(function.receiver), str):
            return derive_rank_local(*call.values)
        return of_method(function.receiver, function.name, call.values)
    if isinstance(function, Unknown) and _TOKENIZES.match(function.library):
        return derive_rank_local(*call.values, *call.spread)
    if isinstance(function, Unknown) and function.owner is not None:
        name = attribute_name(function)
        return of_method(function.owner, name, call.values if name == "size" else ())
    return None


def attribute_name(function: Unknown) -> str:
    """The name of the attribute that a function was read from."""
    parts = function.owner.parts if function.owner is not None else {}
    return next((name for name, part in parts.items() if part is function), "")


def of_method(receiver: Value, name: str, values: Iterable[Value]) -> RankLocal | None:
    """What makes the result of a method of a tensor or batch different on each rank."""
    if not isinstance(receiver, Unknown | TensorValue):
        return None
    local = local_of(receiver)
    if name in _SIZES or (name == "size" and [constant(value) for value in values] == [0]):
        return length_of_selection(local)
    if name in _SELECTS:
        return _selected(local)
    if name in STRUCTURE or name in _NEW_VALUES or name in _AGREED:
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


def _gives_number(name: str, arguments: Iterable[Value]) -> bool:
    """Whether a function or method certainly gives one number for all elements of a tensor."""
    return name in _REDUCES and len(list(arguments)) <= (1 if name in _TAKES_ORDER else 0)


def _selected(local: RankLocal | None) -> RankLocal | None:
    """What makes elements different on each rank, and their number, that the data choose."""
    return replace(local, counts=True, selected=True) if local is not None else None


def length_of_selection(local: RankLocal | None) -> RankLocal | None:
    """What makes the number of elements different on each rank, if the data choose them."""
    if local is None or not local.selected:
        return None
    return RankLocal(local.source, immutable=True)


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
    if last in STRUCTURE or last in _NEW_VALUES or last.endswith("_like"):
        return False
    return name in _COMPUTES or (name.startswith(_COMPUTING) and not name.startswith(COMMUNICATES))
