"""Attributes of classes that decorators in other files set."""

from __future__ import annotations

from pathlib import Path

from programs import events, program

from fsdplint.trace import OptimizerBuilt, OptimizerStepped, Sharded

REGISTRY = """
class Base:
    registry = None
    limit = None

    @classmethod
    def register(cls, name):
        def wrap(made):
            if cls.registry is None:
                cls.registry = {}
            cls.registry[name] = made
            return made
        return wrap
"""


def test_a_registry_that_other_files_fill_is_not_known_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(REGISTRY)
    found = program(
        tmp_path,
        """
        from base import Base

        if Base.registry is None or args.kind not in Base.registry:
            raise ValueError(args.kind)
        model = Base.registry[args.kind].from_settings(args)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        """,
    )
    assert list(events(found, Sharded)) and list(events(found, OptimizerBuilt))


def test_an_attribute_that_no_method_sets_keeps_its_value(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(REGISTRY)
    found = program(
        tmp_path,
        """
        from base import Base

        model = Net()
        if Base.limit is not None:
            fully_shard(model)
        """,
    )
    assert not list(events(found, Sharded))


def test_settings_from_a_dict_that_a_loop_fills_are_the_same_in_each_turn(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        """
        import argparse

        values = {}
        for name in names:
            values[name] = getattr(config, name)
        args = argparse.Namespace(**values)
        model = Net()
        if args.shard:
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for x in data:
            model(x).sum().backward()
            if args.shard:
                optimizer.step()
        """,
    )
    for trace in found.traces:
        assert bool(list(trace.of(Sharded))) == bool(list(trace.of(OptimizerStepped)))
    assert len(found.traces) == 2
