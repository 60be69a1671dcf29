"""The builtins `any` and `all`."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.models.python import quiet
from fsdplint.interpreter.models.registry import function
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.torch_values import NameTest, RankTest
from fsdplint.interpreter.values import Condition, Const, Sequence, Unknown, Value
from fsdplint.source.positions import descend


@function("builtins.any", "builtins.all")
def any_or_all(run: Run, name: str, call: Call) -> Value:
    """Known if an element decides it, or all elements are known."""
    decisive = name == "builtins.any"
    elements = run.settle(call.args[0]) if len(call.args) == 1 else Unknown()
    if isinstance(elements, Sequence):
        known = [item.value for item in map(run.settle, elements.items) if isinstance(item, Const)]
        if any(bool(value) is decisive for value in known):
            return Const(decisive)
        if len(known) == len(elements.items) and not elements.open:
            return Const(not decisive)
        alone = _only_condition(run, elements)
        if alone is not None:
            return alone
        if decisive and (named := _test_of_a_name(run, elements)) is not None:
            return named
        test = _rank_test_among(run, elements, every=not decisive)
        if test is not None:
            return test
    return _of_setting(run, name, call) or quiet(run, name, call)


def _of_setting(run: Run, name: str, call: Call) -> Unknown | None:
    """`any(size > 1 for size in config.sizes)`: a fact of the configuration, like the setting.

    None if the test depends on more than the elements of one setting.
    """
    argument = call.node.args[0].value if isinstance(call.node, cst.Call) else None
    if not isinstance(argument, cst.GeneratorExp | cst.ListComp):
        return None
    loop = argument.for_in
    source = run.settle(run.evaluations.get(loop.iter, Unknown()))
    if not isinstance(source, Unknown) or not source.origin or source.differs:
        return None
    parts = list(descend(argument.elt))
    names = {one.value for one in parts if isinstance(one, cst.Name)}
    bound = {one.value for one in descend(loop.target) if isinstance(one, cst.Name)}
    if loop.ifs or loop.inner_for_in is not None or not names <= bound:
        return None
    if any(isinstance(one, cst.Call) for one in parts):
        return None
    test = f"{run.text(argument.elt)} for {run.text(loop.target)} in {source.origin}"
    return Unknown(f"{name.rpartition('.')[2]}({test})")


def _only_condition(run: Run, elements: Sequence) -> Condition | None:
    """The bound of a number on which `any` or `all` depends, if no other element does.

    The only element of another kind may stand for several.
    """
    items = [one for one in map(run.settle, elements.items) if not isinstance(one, Const)]
    alone = items[0] if len(items) == 1 and not elements.open else None
    return alone if isinstance(alone, Condition) and alone.relation == ">" else None


def _test_of_a_name(run: Run, elements: Sequence) -> NameTest | None:
    """The test whether one of several texts is in a name: `any(text in name for text in texts)`."""
    tests = [one for one in map(run.settle, elements.items) if isinstance(one, NameTest)]
    if not tests or len(tests) < len(elements.items) or len({one.at_end for one in tests}) > 1:
        return None
    texts = tuple(text for one in tests for text in one.texts)
    return NameTest(varying=True, texts=texts, at_end=tests[0].at_end)


def _rank_test_among(run: Run, elements: Sequence, *, every: bool) -> RankTest | None:
    """The test of the rank that `all` or `any` of some elements comes down to.

    A condition of the configuration, or a setting, may decide against it.
    """
    items = [run.settle(item) for item in elements.items]
    tests = [item for item in items if isinstance(item, RankTest)]
    others = [item for item in items if not isinstance(item, RankTest | Const)]
    harmless = every and all(
        isinstance(item, Unknown) and (item.varying or not item.origin) for item in others
    )
    if len(tests) != 1 or (others and not harmless) or (elements.open and not every):
        return None
    return tests[0]
