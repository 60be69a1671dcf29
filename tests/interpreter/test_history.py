"""How modules were sharded before an event: told without a table for each event."""

from __future__ import annotations

import tracemalloc

from fsdplint.trace import FixedSite, Location, Module, Sharded, Sharding, Trace, Wrapped

SITE = FixedSite(Location("a.py", 1, 1, 1, 2))


def sharded(number: int) -> Trace:
    trace = Trace(producer="static")
    for n in range(number):
        trace.modules[f"m{n}"] = Module(f"m{n}", "Linear", f"m{n}")
        trace.add(Sharded(site=SITE, module=f"m{n}"))
    return trace


def test_what_held_before_an_event() -> None:
    trace = Trace(producer="static")
    one = trace.add(Wrapped(site=SITE, module="w", inner="a"))
    other = trace.add(Sharded(site=SITE, module="a", group=("a", "b")))
    again = trace.add(Sharded(site=SITE, module="w"))
    for _ in range(2):
        assert not trace.shardings(one)
        assert dict(trace.shardings(other)) == {"w": Sharding.FSDP1}
        both = {"w": Sharding.FSDP1, "a": Sharding.FSDP2, "b": Sharding.FSDP2}
        assert dict(trace.shardings(again)) == both
        assert dict(trace.shardings()) == {**both, "w": Sharding.FSDP2}
        trace.seal()


def test_memory_grows_with_the_models_and_not_with_their_square() -> None:
    def taken(number: int) -> int:
        trace = sharded(number)
        trace.seal()
        tracemalloc.start(1)
        kept = [trace.shardings(event) for event in trace]
        assert all(
            event.module not in one for event, one in zip(trace.of(Sharded), kept, strict=True)
        )
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert taken(800) < 6 * taken(200)
