"""When two values are the same, and when that is not known."""

from __future__ import annotations

import pytest

from fsdplint.comparison.facts import differ_in_constants, same_argument
from fsdplint.trace.arguments import Argument, Built, Constant, Named, OneOf, Opaque

ONE, TWO = Constant(1), Constant(2)
DTYPE = Named("torch.bfloat16")
UNKNOWN = Opaque(code="f(x)")
LR = Opaque("args.lr", "lr")


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        (ONE, ONE, True),
        (ONE, Constant(1.0), True),
        (ONE, Constant(True), False),
        (ONE, TWO, False),
        (DTYPE, Named("torch.float16"), False),
        (DTYPE, Constant(None), False),
        (DTYPE, UNKNOWN, None),
        (UNKNOWN, UNKNOWN, None),
        (LR, Opaque("args.lr", "rate"), True),
        (LR, Opaque("args.rate", "rate"), None),
        (Opaque(code="0.1 * lr"), Opaque(code="0.2 * lr"), False),
        (Opaque(code="lr"), Opaque(code="lr * 2"), False),
        (Opaque(code="lr"), Opaque(code="10 * lr"), False),
        (Opaque(code="args.lr"), Opaque(code="args.lr**2"), False),
        (Opaque(code="lr"), Opaque(code="lr * 1.0"), None),
        (Opaque(code="lr"), Opaque(code="2 / lr"), None),
        (Opaque(code="lr"), Opaque(code="rate * 2"), None),
        (Built("tuple", (("0", ONE),)), Built("list", (("0", ONE),)), True),
        (Built("tuple", (("0", ONE),)), Built("tuple", (("0", UNKNOWN),)), None),
        (Built("tuple", (("0", ONE),)), Built("tuple", (("0", ONE), ("1", TWO))), False),
        (Built("a.B", (("x", ONE),), complete=False), Built("a.B", (("x", ONE),)), None),
        (Built("a.B", (("x", ONE),), complete=False), Built("a.B", (("x", TWO),)), False),
        (OneOf((ONE, TWO)), TWO, True),
        (OneOf((ONE, UNKNOWN)), TWO, None),
        (OneOf((ONE, TWO)), Constant(3), False),
    ],
)
def test_same(one: Argument, other: Argument, answer: bool | None) -> None:
    assert same_argument(one, other) is answer
    assert same_argument(other, one) is answer


def test_expressions_differ_in_constants() -> None:
    assert differ_in_constants("os.path.join(out, 'a')", "os.path.join(out, 'b')")
    assert not differ_in_constants("os.path.join(out, 'a')", "os.path.join(folder, 'b')")
    assert not differ_in_constants("out", "out")
    assert not differ_in_constants("", "out")
