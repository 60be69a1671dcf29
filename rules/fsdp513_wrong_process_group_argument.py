"""FSDP513: see the class."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from fsdplint.diagnostics.finding import Finding, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import ProcessGroupInit, Ranks, Trace
from fsdplint.trace.queries.backends import BACKENDS

_ADDRESS = "Pass `rank` and `world_size`, or launch with torchrun and remove `init_method`"
_SIMULATION = "fake"  # torch's backend for a single process that plays one of many ranks
Problem = tuple[str, str]


class WrongProcessGroupArgument(Rule):
    """`init_process_group` gets arguments that it does not accept, or that contradict each other.

    ## What it does
    Finds calls of `torch.distributed.init_process_group` with

    - `init_method` and `store` together, or a `store` without `rank` and `world_size`,
    - an address `tcp://...` or `file://...` without `rank` or `world_size`, or a `tcp://` address
      without a port or for multicast,
    - a `timeout` that is a number,
    - a backend that is a kind of device, a name that differs from `nccl` or `gloo` in one letter, or pairs
      of devices and backends that cannot be read,
    - a `device_id` without an index,
    - a constant `rank` that is the same on every rank, or is not below `world_size`; not with the
      backend "fake", with which one process plays one of many ranks.

    Backends that other packages register (`Backend.register_backend`) are not known, so any other
    name of a backend is accepted, and so is any name that ends in `ccl`.

    ## Why is this bad?
    The call fails on every rank:

        AssertionError: Cannot specify both init_method and store.
        AssertionError: world_size must be positive if using store
        ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing
        TypeError: Expected timeout argument to be of type datetime.timedelta, got 30
        AssertionError: Unknown backend type cuda
        AssertionError: Unknown backend type ncll
        ValueError: init_process_group device_id parameter must be an accelerator with an index

    With the same constant `rank` on every rank, and with a `rank` that is not below `world_size`, the
    ranks wait for each other until the timeout. torch supports no multicast addresses: the ranks wait, too.

    ## Since
    All versions. `device_id` came with torch 2.3.

    ## References
    - https://docs.pytorch.org/docs/stable/distributed.html (`init_process_group`)
    """

    code = "FSDP513"
    name = "wrong-process-group-argument"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        seen = set()
        for event in trace.of(ProcessGroupInit):
            problem = next(_problems(event), None)
            if problem is None or event.site in seen:
                continue
            seen.add(event.site)
            what, advice = problem
            yield self.finding(event, f"`init_process_group` {what}", help=f"{advice}.")


def _problems(event: ProcessGroupInit) -> Iterator[Problem]:
    options = event.options
    yield from _rendezvous_problems(options)
    yield from _backend(options.get("backend"))
    timeout = options.get("timeout")
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        yield f"gets the number {timeout} as `timeout`", "Pass a `datetime.timedelta`"
    device = options.get("device_id")
    if isinstance(device, str) and device.isalpha():
        yield (
            f"gets the device `{device}` as `device_id`, which has no index",
            'Pass the device of this rank, for example `torch.device("cuda", local_rank)`',
        )
    yield from _ranks(event)


def _rendezvous_problems(options: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong with how the ranks find each other."""
    method, store = options.get("init_method"), options.get("store")
    missing = [name for name in ("rank", "world_size") if options.get(name, -1) == -1]
    if "**" in options:
        missing = []
    if store is not None and method is not None and "?" not in (store, method):
        yield "gets both `init_method` and `store`", "Pass one of them"
    elif store not in (None, "?") and missing:
        yield (
            f"gets a `store` without `{missing[0]}`",
            "Pass `rank` and `world_size` together with the store",
        )
    if isinstance(method, str) and "rank=" not in method:
        scheme, _, address = method.partition("://")
        if scheme in ("tcp", "file") and missing:
            yield (
                f"gets an address `{scheme}://` without `{missing[0]}`",
                _ADDRESS,
            )
        elif scheme == "tcp" and "?" not in address and ":" not in address:
            yield "gets a `tcp://` address without a port", "Add the port to the address"
        elif scheme == "tcp" and _is_multicast(address):
            yield (
                "gets a multicast address",
                "Pass the address of the machine that runs rank 0",
            )


def _is_multicast(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_multicast
    except ValueError:
        return False


def _backend(backend: object) -> Iterator[Problem]:
    if not isinstance(backend, str) or backend == "?" or backend.startswith("torch."):
        return
    advice = 'Pass a backend such as "nccl", or pairs such as "cpu:gloo,cuda:nccl"'
    if backend.lower() in ("cuda", "cpu", "gpu", "xpu"):
        yield f"gets the device `{backend}` as its backend", advice
    elif ":" in backend or "," in backend:
        for pair in backend.lower().split(","):
            device, _, name = pair.partition(":")
            if not name or ":" in name or ";" in name or device in BACKENDS:
                yield f"gets `{backend}`, which is no list of pairs `device:backend`", advice
                return
    else:
        intended = _intended_backend(backend.lower())
        if intended is not None:
            yield f"gets the unknown backend `{backend}`", f"Pass `{intended}`"


def _intended_backend(name: str) -> str | None:
    """The backend whose name differs in one letter, or in the order of two."""
    if name in BACKENDS or name.endswith("ccl"):
        return None
    return next((one for one in ("nccl", "gloo") if name in _one_edit(one)), None)


def _one_edit(word: str) -> set[str]:
    """The words that one wrong, missing, further or swapped letter makes of another."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    cuts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    less = {head + tail[1:] for head, tail in cuts if tail}
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in cuts if len(tail) > 1}
    other = {head + letter + tail[1:] for head, tail in cuts if tail for letter in letters}
    more = {head + letter + tail for head, tail in cuts for letter in letters}
    return less | swapped | other | more


def _ranks(event: ProcessGroupInit) -> Iterator[Problem]:
    """Constants that cannot be right on more than one rank."""
    rank, size = event.options.get("rank"), event.options.get("world_size")
    if event.options.get("backend") == _SIMULATION:
        return
    if not isinstance(rank, int) or not isinstance(size, int) or rank < 0 or size < 1:
        return
    if rank >= size:
        yield (
            f"gets `rank={rank}`, but the ranks of `world_size={size}` are 0 to {size - 1}",
            "Pass the rank of the process",
        )
    elif size > 1 and event.ranks is Ranks.ALL and len(event.took_part) != 1:
        yield (
            f"gets `rank={rank}` on every rank",
            'Pass the rank of the process, for example `int(os.environ["RANK"])`, or launch with '
            "torchrun and remove the argument",
        )
