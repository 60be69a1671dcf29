"""Strategies that a program looks up by their names."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import plan, refusals

MODEL = "model = FSDP(Net(), sharding_strategy={0}, auto_wrap_policy=ModuleWrapPolicy({{Block}}))\n"
KNOWN = '("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")'
LOOKUPS = {
    "a default": (
        """
        how = os.environ["HOW"]
        strategy = getattr(ShardingStrategy, how, ShardingStrategy.FULL_SHARD)
        """,
        f'strategy = how if how in {KNOWN} else "FULL_SHARD"',
    ),
    "a default of None": (
        """
        how = os.environ["HOW"]
        strategy = getattr(ShardingStrategy, how.upper(), None)
        if strategy is None:
            raise ValueError(how)
        """,
        f"strategy = how.upper() if how.upper() in {KNOWN} else None",
    ),
    "a default in a function": (
        """
        def choose(config):
            return getattr(ShardingStrategy, config["shard"], ShardingStrategy.SHARD_GRAD_OP)


        strategy = choose(dict(os.environ))
        """,
        f'return config["shard"] if config["shard"] in {KNOWN} else "SHARD_GRAD_OP"',
    ),
    "a name in a dict": (
        """
        strategy = getattr(
            ShardingStrategy, os.environ.get("HOW", "FULL_SHARD"), ShardingStrategy.FULL_SHARD
        )
        """,
        f'os.environ.get("HOW", "FULL_SHARD") in {KNOWN} else "FULL_SHARD"',
    ),
    "a default of the members": (
        """
        how = os.environ["HOW"]
        strategy = ShardingStrategy.__members__.get(how, ShardingStrategy.FULL_SHARD)
        """,
        f'strategy = how if how in {KNOWN} else "FULL_SHARD"',
    ),
    "no default of the members": (
        """
        how = os.environ["HOW"]
        strategy = ShardingStrategy.__members__.get(how.upper())
        """,
        f"strategy = how.upper() if how.upper() in {KNOWN} else None",
    ),
    "a default of the members that another one follows": (
        """
        how = os.environ["HOW"]
        strategy = ShardingStrategy.__members__.get(how) or ShardingStrategy.NO_SHARD
        """,
        f'strategy = (how if how in {KNOWN} else None) or "NO_SHARD"',
    ),
    "a question for a name": (
        """
        how = os.environ["HOW"]
        if not hasattr(ShardingStrategy, how):
            raise ValueError(how)
        known = hasattr(ShardingStrategy, how)
        strategy = getattr(ShardingStrategy, how)
        """,
        f"if how not in {KNOWN}:\n    raise ValueError(how)\nknown = how in {KNOWN}\nstrategy = how\n",
    ),
    "a test for a member": (
        """
        def choose(how):
            if isinstance(how, ShardingStrategy):
                return how
            return ShardingStrategy[how.upper()]


        strategy = choose(os.environ["HOW"])
        """,
        f"if how in {KNOWN}:\n        return how\n    return how.upper()\n",
    ),
    "a test for no member": (
        """
        strategy = os.environ["HOW"]
        if not isinstance(strategy, ShardingStrategy):
            strategy = ShardingStrategy[strategy.upper()]
        """,
        f"if strategy not in {KNOWN}:\n    strategy = strategy.upper()\n",
    ),
    "a choice between a member and a name": (
        """
        how = os.environ["HOW"]
        strategy = how if isinstance(how, ShardingStrategy) else ShardingStrategy[how]
        """,
        "strategy = how\n",
    ),
    "a test for a member of one of two enums": (
        """
        def choose(how):
            if isinstance(how, (ShardingStrategy, StateDictType)):
                return how
            return ShardingStrategy[how]


        strategy = choose(os.environ["HOW"])
        """,
        f'if how in {KNOWN[:-1]}, "FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"):\n',
    ),
    "a test for a member and for other classes": (
        """
        def choose(how):
            if isinstance(how, (ShardingStrategy, int)) and how:
                return how
            return ShardingStrategy[how]


        strategy = choose(os.environ["HOW"])
        """,
        f"if (how in {KNOWN} or isinstance(how, int)) and how:\n",
    ),
    "a member of the same enum": (
        """
        class Config:
            def __init__(self):
                self.rate, self.how = 0.1, ShardingStrategy.FULL_SHARD

            def update(self, key, given):
                old = getattr(self, key)
                if isinstance(old, ShardingStrategy):
                    print(key, old.name, type(old).__name__)
                    setattr(self, key, type(old)[given])
                else:
                    setattr(self, key, type(old)(given))


        config = Config()
        config.update("how", os.environ["HOW"])
        strategy = config.how
        """,
        "print(key, old, type(old).__name__)\n            setattr(self, key, given)\n",
    ),
    "the identity of a member": (
        """
        strategy = ShardingStrategy[os.environ["HOW"]]
        if strategy is not ShardingStrategy.NO_SHARD:
            print(strategy.name, ShardingStrategy.FULL_SHARD is strategy)
        """,
        'if strategy != "NO_SHARD":\n    print(strategy, "FULL_SHARD" == strategy)\n',
    ),
    "the name of a member that is looked up": (
        """
        strategy = getattr(ShardingStrategy, os.environ["HOW"], None)
        print(strategy and strategy.name)
        """,
        "print(strategy and strategy)\n",
    ),
    "the name of a member in a dict": (
        """
        known = {"zero3": ShardingStrategy.FULL_SHARD, "zero2": ShardingStrategy.SHARD_GRAD_OP}
        strategy = known[os.environ["HOW"]]
        print(strategy.name, known.get("zero3").name)


        def choose(how):
            return [ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD][how]


        print(choose(1).name)
        """,
        'print(strategy, known.get("zero3"))\n',
    ),
    "the name of an argument of the command line": (
        """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("-s", "--shard-how", type=lambda how: ShardingStrategy[how])
        parser.add_argument("--other", dest="more", default=ShardingStrategy.FULL_SHARD)
        args = parser.parse_args()
        print(args.shard_how.name, args.more.name)
        strategy = args.shard_how
        """,
        "print(args.shard_how, args.more)\n",
    ),
    "the text of a member": (
        """
        strategy = ShardingStrategy[os.environ["HOW"]]
        if str(strategy) == "ShardingStrategy.NO_SHARD" or "HYBRID" in str(strategy):
            print(str(strategy).split(".")[1], str(strategy).split(".")[-1])
        """,
        'if str(strategy) == "NO_SHARD" or "HYBRID" in str(strategy):\n'
        "    print(strategy, strategy)\n",
    ),
    "the text of a member that is compared with a computed text": (
        """
        strategy = ShardingStrategy[os.environ["HOW"]]
        wanted = "ShardingStrategy." + os.environ["WANTED"]
        if str(strategy) == wanted:
            print(str(strategy))
        """,
        'if f"ShardingStrategy.{strategy}" == wanted:\n    print(str(strategy))\n',
    ),
    "the text of a member that is a part of a path": (
        """
        strategy = ShardingStrategy[os.environ["HOW"]]
        path = os.path.join("out", str(strategy))
        """,
        'path = os.path.join("out", f"ShardingStrategy.{strategy}")\n',
    ),
    "the text of a member in a loop over all members": (
        """
        strategy = None
        for member in ShardingStrategy:
            if str(member) == "ShardingStrategy." + os.environ["HOW"]:
                strategy = member
        """,
        'if f"ShardingStrategy.{member}" == "ShardingStrategy." + os.environ["HOW"]:\n',
    ),
    "the name of a value of an enum of the program": (
        """
        import enum


        class Mode(enum.Enum):
            FULL = ShardingStrategy.FULL_SHARD
            GRAD = ShardingStrategy.SHARD_GRAD_OP


        mode = Mode[os.environ["HOW"]]
        print(mode.name, mode.value.name)
        strategy = mode.value
        """,
        "print(mode.name, mode.value)\n",
    ),
    "a list of the members": (
        """
        strategy = list(ShardingStrategy)[int(os.environ["HOW"])]
        """,
        f"strategy = list({KNOWN})[int",
    ),
    "the name of what is a member by its type": (
        """
        from typing import Optional


        class Config:
            how: ShardingStrategy
            other: Optional[ShardingStrategy]


        def choose(config, given: ShardingStrategy):
            print(config.how.name, config.other.name, given.name)
            return config.how


        strategy = choose(*torch.load("config.pt"))
        """,
        "print(config.how, config.other, given)\n",
    ),
    "a choice of the members": (
        """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--how", default="FULL_SHARD", choices=ShardingStrategy.__members__)
        strategy = ShardingStrategy[parser.parse_args().how]
        """,
        f'default="FULL_SHARD", choices={KNOWN})',
    ),
    "a test of the members": (
        """
        how = os.environ["HOW"]
        assert how in ShardingStrategy.__members__.keys()
        strategy = ShardingStrategy.__members__[how]
        """,
        f"assert how in {KNOWN}\nstrategy = how",
    ),
    "a loop over the members": (
        """
        names = [s.name for s in ShardingStrategy if s.name != "NO_SHARD"]
        strategy = ShardingStrategy[names[int(os.environ["HOW"])]]
        """,
        f'names = [s for s in {KNOWN} if s != "NO_SHARD"]',
    ),
    "a dict of the members": (
        """
        known = {s.name.lower(): s for s in ShardingStrategy}
        strategy = known[os.environ["HOW"]]
        """,
        f"known = {{s.lower(): s for s in {KNOWN}}}\n",
    ),
    "a type in an annotation": (
        """
        from typing import ClassVar, Dict, Optional


        class Config:
            how: Optional[ShardingStrategy] = ShardingStrategy.FULL_SHARD
            known: ClassVar[Dict[str, ShardingStrategy]] = {"zero2": ShardingStrategy.SHARD_GRAD_OP}


        strategy = Config.known.get(os.environ["HOW"], Config.how)
        """,
        "how: Optional[str]",
    ),
    "no default": (
        """
        strategy = getattr(ShardingStrategy, os.environ["HOW"])
        """,
        'strategy = os.environ["HOW"]',
    ),
}


def test_the_names_of_an_enum_without_counterpart_stay(tmp_path: Path) -> None:
    body = """
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--prefetch", choices=[p.name for p in BackwardPrefetch])
        parser.add_argument("--other", choices=sorted(BackwardPrefetch.__members__))
        args = parser.parse_args()
        model = FSDP(Net(), backward_prefetch=BackwardPrefetch[args.prefetch])
    """
    found, text = plan(tmp_path, textwrap.dedent(body))
    assert not found.blockers
    names = '("BACKWARD_PRE", "BACKWARD_POST")'
    assert f"choices=[p for p in {names}])" in text
    assert f"choices=sorted({names}))" in text


@pytest.mark.parametrize("name", LOOKUPS)
def test_the_name_becomes_the_strategy(name: str, tmp_path: Path) -> None:
    before, expected = LOOKUPS[name]
    body = textwrap.dedent(before) + MODEL.format("strategy")
    found, text = plan(tmp_path, body)
    assert not found.blockers
    assert expected in text
    assert not refusals(tmp_path, body)


def test_the_name_of_a_member_without_counterpart(tmp_path: Path) -> None:
    body = """
        prefetch = BackwardPrefetch.BACKWARD_PRE
        print(prefetch.name, prefetch is BackwardPrefetch.BACKWARD_PRE)
        model = FSDP(Net(), backward_prefetch=prefetch)
    """
    found, text = plan(tmp_path, textwrap.dedent(body))
    assert not found.blockers
    assert 'print(prefetch, prefetch == "BACKWARD_PRE")' in text


def test_the_identity_of_a_type_of_states(tmp_path: Path) -> None:
    body = """
        kind = StateDictType[os.environ["KIND"]]
        print(kind is StateDictType.FULL_STATE_DICT, kind.name)
        model = FSDP(Net())
    """
    found, text = plan(tmp_path, textwrap.dedent(body))
    assert not found.blockers
    assert 'print(kind == "FULL_STATE_DICT", kind)' in text


def test_a_default_inside_of_an_expression(tmp_path: Path) -> None:
    look = "getattr(ShardingStrategy, how, ShardingStrategy.NO_SHARD)"
    body = f"how = os.environ['HOW']\nprint({look} == ShardingStrategy.NO_SHARD)\n"
    found, text = plan(tmp_path, body + MODEL.format(look))
    assert not found.blockers
    assert f'print((how if how in {KNOWN} else "NO_SHARD") == "NO_SHARD")' in text


@pytest.mark.parametrize("read", ["old.value", "list(type(old).__members__)", "[*type(old)]"])
def test_what_a_name_does_not_have_blocks(read: str, tmp_path: Path) -> None:
    body = f"""
        def show(settings, key):
            old = settings[key]
            if isinstance(old, ShardingStrategy):
                print({read})


        show(dict(os.environ), "HOW")
    """
    found, _ = plan(tmp_path, textwrap.dedent(body) + MODEL.format("ShardingStrategy.FULL_SHARD"))
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-enum-member-read"]


def test_the_number_of_a_member_in_a_dict_blocks(tmp_path: Path) -> None:
    body = """
        known = {"zero3": ShardingStrategy.FULL_SHARD, "zero2": ShardingStrategy.SHARD_GRAD_OP}
        print(known[os.environ["HOW"]].value)
    """
    found, _ = plan(tmp_path, textwrap.dedent(body) + MODEL.format("known['zero3']"))
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-enum-member-read"]


def test_a_name_that_cannot_be_read_twice_is_left(tmp_path: Path) -> None:
    look = "getattr(ShardingStrategy, input(), ShardingStrategy.FULL_SHARD)"
    found, _ = plan(tmp_path, MODEL.format(look))
    assert found.blockers
