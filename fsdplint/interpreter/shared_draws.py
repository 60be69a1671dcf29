"""Random numbers that all ranks draw alike, and whether a rank may have data of its own.

A generator with the same seed on all ranks gives each of them the same batches, unless something
else depends on the rank. Words and unknown code can only hide that: the first place where ranks may
get data of their own is noted, and ends the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.library_classes import is_report
from fsdplint.interpreter.method_names import attribute_name, library_of
from fsdplint.interpreter.rank_invariance import is_code_invariant
from fsdplint.interpreter.rank_local import local_of
from fsdplint.interpreter.rank_local_calls import draws, is_global_rank, names_process
from fsdplint.interpreter.ranks import depends_on_process, depends_on_rank
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import (
    GeneratorValue,
    MeshPosition,
    RankChoice,
    RankTest,
    SamplerValue,
)
from fsdplint.interpreter.turn_tests import number_of
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Const,
    Dict,
    Function,
    GeneratorContext,
    Instance,
    Method,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace import RankData, Ranks, SharedNumbersDrawn
from fsdplint.trace.numbers import Number, Token

# Libraries whose functions compute the same on all ranks from the same arguments.
_COMPUTES = frozenset(
    "abc argparse ast bisect builtins collections contextlib copy csv dataclasses datetime enum "
    "functools gc glob gzip heapq importlib io itertools json logging math numpy operator os "
    "pathlib pickle random re shutil signal statistics string struct sys tempfile textwrap time "
    "tokenizers torch traceback typing typing_extensions types warnings yaml".split()
)
_REPORTS = frozenset("logging loguru rich tensorboard termcolor tqdm wandb warnings".split())
# Functions of these that give ranks data of their own, or may.
_SPLITS = re.compile(
    r"\.utils\.data\.|scatter|all_to_all|\brecv|\.P2POp|context_parallel|tensor\.parallel"
    r"|distributed_sampler|\.urandom$|\.getpid$|\.fork_rng$|\.seed$|\.initial_seed$"
)
# They get the rank for something else than data.
_TAKES_RANK = re.compile(
    r"torch\.(?:distributed\.|cuda\.|device$|accelerator\.|xpu\.|save$|profiler\.)"
    r"|builtins\.(?:print|str|int|bool|isinstance|repr|format|type|hasattr|id)$"
    r"|os\.(?:path\.|makedirs$|mkdir$|remove$|environ|getenv)|pathlib\.|shutil\.|tempfile\.|sys\."
)
# Variables of other launchers than torch's that may hold the rank.
_OF_LAUNCHER = re.compile(r"os\.environ\[.*(?:RANK|PROC|NODE|TASK|POD|HOST)")
_METHODS_WITH_RANK = frozenset("to cuda format join".split())
_OF_WORKER = (".get_worker_info", ".initial_seed")  # another one in each worker
_ADDS = frozenset("append extend insert setdefault update".split())  # to a list or dict
_SEEDS = re.compile(r"(?:^|\.)(?:manual_seed(?:_all)?|set_seed|seed_everything|seed)$")
_GENERATORS = frozenset({"numpy.random.default_rng", "numpy.random.RandomState", "random.Random"})
_OF_PROCESS = "torch.default_generator"
_READS_GENERATOR = frozenset("bit_generator bytes get_state getstate".split())
_SHUFFLES = frozenset({"numpy.random.shuffle", "random.shuffle"})  # in place
_ORDERS = frozenset({"randperm"})
_NUMBERS = frozenset({"torch.randint", "torch.randperm"})
_OWN_CODE = (Bound, Class, Function, GeneratorContext, Instance, ModuleValue, Partial)
MAX_DEPTH = 2


def note_call(run: Run, function: Value, call: Call) -> None:
    """Note that a call draws numbers that all ranks draw alike, or may give ranks their own."""
    if run.probe is not None and not isinstance(function, _OWN_CODE):
        _note_in_probe(run, function, call)
    if run.has_rank_data or run.decisions.single_rank or isinstance(function, _OWN_CODE):
        return
    if _may_differ(run, function, call):
        note_rank_data(run, call.node)
        return
    generator = _drawn_from(run, function, call)
    seed = generator.seed if isinstance(generator, GeneratorValue) else generator
    if generator is None or seed is None or in_model(run):
        return
    one_sided = run.ranks() is not Ranks.ALL
    if one_sided and not isinstance(generator, Symbol):
        run.one_sided_generators.add(generator)  # from here on, it has another state there
    elif one_sided or generator in run.one_sided_generators:
        note_rank_data(run, call.node)
    elif run.site(call.node) not in run.shared_draws:
        run.shared_draws.add(run.site(call.node))
        shift = _is_shifted(run, seed)
        if shift and _name(function) in _ORDERS:
            note_rank_data(run, call.node)  # an order of its own, of the same data
            return
        run.emit(SharedNumbersDrawn, call.node, shifted=shift)


def _note_in_probe(run: Run, function: Value, call: Call) -> None:
    """Note what a call does that reads a sample: see `data_probes`."""
    probe = run.probe
    if isinstance(function, Symbol):
        probe.draws = probe.draws or _draws_from_process(run, function.name, call)
        asks = function.name.endswith(_OF_WORKER) or names_process(function)
        probe.by_process = probe.by_process or asks
        probe.is_out_of_sight = probe.is_out_of_sight or not _is_in_sight(function.name)
    elif isinstance(function, Unknown):
        library = function.library or library_of(function)
        in_sight = _is_in_sight(library) if library else function.owner is not None
        probe.is_out_of_sight = probe.is_out_of_sight or not in_sight


def note_visited(run: Run, value: Value) -> None:
    """Note a loop over an object that may give each worker other elements."""
    library = value.library if run.probe is not None and isinstance(value, Unknown) else ""
    if library and not _is_in_sight(library):
        run.probe.is_out_of_sight = True


def _is_in_sight(name: str) -> bool:
    """Whether it is known of the objects and functions of a library what they give a worker."""
    shared = name.startswith("torch.multiprocessing.")  # a queue gives each element once
    return name.partition(".")[0] in _COMPUTES | _REPORTS and not shared


def note_rank_data(run: Run, node: cst.CSTNode) -> None:
    """The ranks may have data of their own from here on."""
    if not run.has_rank_data and not run.decisions.single_rank:
        run.has_rank_data = True
        run.emit(RankData, node)


def note_selection(run: Run, node: cst.CSTNode, indices: Iterable[Value]) -> None:
    """An index or the bounds of a slice."""
    if not run.has_rank_data and any(_of_rank(run, one) for one in indices):
        note_rank_data(run, node)


def note_comparison(run: Run, node: cst.CSTNode, operands: list[Value]) -> None:
    """`i % world_size == rank` selects data; `rank == 0` does not."""
    if run.has_rank_data or not any(_of_rank(run, one) for one in operands):
        return
    if sum(not isinstance(run.settle(one), Const) for one in operands) > 1:
        note_rank_data(run, node)


def _of_rank(run: Run, value: Value | None, depth: int = 0) -> bool:
    """Whether the rank decides a value, or a part of it."""
    if value is None:
        return False
    value = run.settle(value)
    if isinstance(value, RankTest | RankChoice | MeshPosition | SamplerValue):
        return True
    if depends_on_rank(value):
        return True
    if isinstance(value, Unknown) and _OF_LAUNCHER.match(value.origin):
        return True
    if depth >= MAX_DEPTH:
        return False
    if isinstance(value, Sequence):
        return any(_of_rank(run, one, depth + 1) for one in value.items)
    if isinstance(value, Dict):
        return any(_of_rank(run, one, depth + 1) for one in value.items.values())
    return False


def _may_differ(run: Run, function: Value, call: Call) -> bool:
    """Whether a call of code of a library may give ranks data of their own."""
    given = [*call.values, *call.spread]
    if isinstance(function, Symbol):
        return _library_may_differ(run, function.name, call, given)
    if isinstance(function, Method):
        return _method_may_differ(run, function.receiver, function.name, given)
    if isinstance(function, Unknown):
        if function.owner is None:
            return not function.library and not _is_chosen_code(run, call)
        return _method_may_differ(run, function.owner, attribute_name(function), given)
    return any(_of_rank(run, one) for one in given)


def _is_chosen_code(run: Run, call: Call) -> bool:
    """Whether a call is of some element of a dict of functions that all compute the same on all
    ranks: `REWARDS[name](answers)`."""
    node = call.node
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Subscript):
        return False
    table = run.evaluations.get(node.func.value)
    if not isinstance(table, Dict) or table.open:
        return False
    chosen = [run.settle(one) for one in table.items.values()]
    return all(isinstance(one, Function) and is_code_invariant(run, one) for one in chosen)


def _library_may_differ(run: Run, name: str, call: Call, given: list[Value]) -> bool:
    root = name.partition(".")[0]
    if root in _REPORTS or is_report(name.rpartition(".")[2]):
        return False
    if root not in _COMPUTES or _SPLITS.search(name) and not _SEEDS.search(name):
        return True
    if name in _GENERATORS:
        return call.open or not given or not all(_is_shared(run, one) for one in given)
    if _SEEDS.search(name):
        return False  # what the process draws may differ, see below
    if _draws_from_process(run, name, call) and (run.seeded is False or not in_model(run)):
        return not (run.seeded is True and name in _NUMBERS and _counts_data(run, call))
    if _TAKES_RANK.match(name):
        return False
    of_process = not name.startswith("torch.") and any(map(depends_on_process, given))
    return of_process or any(_of_rank(run, one) for one in given)


def _method_may_differ(run: Run, receiver: Value, name: str, given: list[Value]) -> bool:
    receiver = run.settle(receiver)
    if isinstance(receiver, ModuleValue | OptimizerValue):
        return False
    if isinstance(receiver, GeneratorValue):
        if name == "manual_seed":
            return not all(
                _is_shared(run, one) or _is_shifted(run, run.settle(one)) for one in given
            )
        return name != "get_state"
    if _SEEDS.search(name):
        return not given or not all(_is_shared(run, one) for one in given)
    if is_report(name) or name in _METHODS_WITH_RANK:
        return False
    if isinstance(receiver, Sequence | Dict):  # its elements are known
        return name not in _ADDS and any(_of_rank(run, one) for one in given)
    return any(_of_rank(run, one) for one in (receiver, *given))


def _is_shared(run: Run, seed: Value) -> bool:
    """Whether a seed is the same on all ranks, if nothing else depends on the rank."""
    seed = run.settle(seed)
    if isinstance(seed, Sequence):
        return not seed.open and all(_is_shared(run, one) for one in seed.items)
    if isinstance(seed, Const):
        return seed.value is not None
    known = isinstance(seed, Unknown) and not depends_on_process(seed)
    return known and not _of_rank(run, seed) and local_of(seed) is None


def added_to_rank(
    run: Run, left: Value, op: cst.BaseBinaryOp | cst.BaseAugOp | None, right: Value
) -> Number | None:
    """What an addition adds to the number of this rank; None if it is not known."""
    if not isinstance(op, cst.Add):
        return None
    for one, other in ((left, right), (right, left)):
        added = number_of(other)
        if added is None:
            continue
        if is_global_rank(one):
            return added
        if one in run.rank_sums:
            return run.rank_sums[one].plus(added)
    return None


def _is_shifted(run: Run, seed: Value) -> bool:
    """Whether other ranks have the seed of a rank in other turns: `turn + rank`."""
    added = run.rank_sums.get(seed)
    parts = added.parts if added is not None else ()
    return any(isinstance(atom, Token) and atom.counts and abs(n) == 1 for atom, n in parts)


def _name(function: Value) -> str:
    return function.name.rpartition(".")[2] if isinstance(function, Symbol) else ""


def _draws_from_process(run: Run, name: str, call: Call) -> bool:
    """Whether a function draws from the generator of the process."""
    given = call.kwargs.get("generator")
    if given is not None and not _is_of_process(run.settle(given)) or name in _GENERATORS:
        return False
    return draws(Symbol(name)) or name in _SHUFFLES


def _is_of_process(generator: Value) -> bool:
    return is_none(generator) or isinstance(generator, Symbol) and generator.name == _OF_PROCESS


def _counts_data(run: Run, call: Call) -> bool:
    """Whether numbers are drawn up to a size, as those of the rows of some data are."""
    sizes = map(run.settle, call.args)
    if any(isinstance(one, Unknown) and one.library == "builtins.len" for one in sizes):
        return True
    words = " ".join(run.text(arg.value) for arg in getattr(call.node, "args", ()))
    return re.search(r"\blen\(|\.shape\b|\.size\b|\.numel\(", words) is not None


def _drawn_from(run: Run, function: Value, call: Call) -> Value | None:
    """The generator from which a call draws numbers, the function for that of the process; None if
    it draws none."""
    if isinstance(function, Symbol):
        if not function.name.startswith("torch.") or not draws(function):
            return None
        return run.settle(call.kwargs.get("generator", function))
    owner = run.settle(function.owner) if isinstance(function, Unknown) and function.owner else None
    if not isinstance(owner, Unknown) or owner.library not in _GENERATORS:
        return None
    assert isinstance(function, Unknown)
    return owner if attribute_name(function) not in _READS_GENERATOR else None


def in_model(run: Run) -> bool:
    """Whether a method of a model is executed, which draws its weights or its dropout."""
    return any(isinstance(frame.receiver, ModuleValue) for frame in run.frames)
