"""An import that a fix adds has run before every use of its name, wherever the use stands."""

from __future__ import annotations

import builtins
import random
from collections.abc import Iterator

import libcst as cst
import pytest
from rewriting import source_of

from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.apply import apply
from fsdplint.edits.rewrite import Rewrite
from fsdplint.syntax.layout import descend

FSDP = "torch.distributed.fsdp"
STATE = "torch.distributed.checkpoint.state_dict"
WANTED = {
    "HERE_A": (STATE, "get_model_state_dict"),
    "HERE_B": (STATE, "StateDictOptions"),
    "HERE_C": (FSDP, "fully_shard"),
}
IMPORTS = (
    "import torch",
    "import torch, os",
    "import torch.distributed as dist",
    f"from {FSDP} import FSDPModule",
    f"from {FSDP} import (\n    FSDPModule,\n)",
    f"from {FSDP} import fully_shard",
    f"from {STATE} import StateDictOptions",
    f"from {STATE} import set_model_state_dict",
)
USES = (
    "use({})",
    "torch.save({})",
    "use(torch, {})",
    "use(FSDPModule, {})",
    "use(dist, {})",
    "x = [{} for _ in (1, 2)]",
    "(lambda: {})()",
    "use(c() and torch.x, {})",
)


class Stub:
    """Any module, class or function of a library."""

    def __getattr__(self, name: str) -> Stub:
        return self

    def __call__(self, *_: object) -> Stub:
        return self


class Programs:
    """Small programs with imports and uses in odd places."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0

    def program(self) -> str:
        lines = list(self.block(2)) if self.random.random() < 0.3 else []
        for _ in range(self.random.choice((0, 1, 1, 2))):
            lines.append(self.random.choice(IMPORTS))
        self.random.shuffle(lines) if all(":" not in x and " " in x for x in lines) else None
        lines += self.function(3)
        if self.random.random() < 0.2:
            lines.append(self.random.choice(IMPORTS))
        return "\n".join(lines) + "\n"

    def function(self, depth: int) -> Iterator[str]:
        self.number += 1
        name = f"f{self.number}"
        yield f"def {name}():"
        yield from self.indented(depth - 1)
        if self.random.random() < 0.2:
            yield self.random.choice(IMPORTS) if depth == 3 else "x = 1"
        yield f"{name}()"

    def indented(self, depth: int) -> Iterator[str]:
        for text in self.block(depth):
            for line in text.split("\n"):
                yield "    " + line

    def use(self) -> str:
        name = "HERE" if self.random.random() < 0.6 else "None"
        return self.random.choice(USES).format(name)

    def small(self) -> str:
        return self.random.choice(IMPORTS) if self.random.random() < 0.45 else self.use()

    def line(self) -> str:
        parts = [self.small() for _ in range(self.random.choice((1, 1, 1, 2, 3)))]
        return "; ".join(parts)

    def block(self, depth: int) -> Iterator[str]:
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if depth <= 0 or kind < 0.5:
                yield self.line()
            elif kind < 0.65:
                yield "if c():"
                yield from self.indented(depth - 1)
                if self.random.random() < 0.5:
                    yield "else:"
                    yield from self.indented(depth - 1)
            elif kind < 0.7:
                yield f"if c(): {self.line()}".replace("(\n    FSDPModule,\n)", "FSDPModule")
            elif kind < 0.77:
                yield "for _ in range(2):"
                yield from self.indented(depth - 1)
            elif kind < 0.84:
                yield "try:"
                yield from self.indented(depth - 1)
                yield self.random.choice(("finally:", "except ImportError:"))
                yield from self.indented(depth - 1)
            elif kind < 0.88:
                yield "with open():"
                yield from self.indented(depth - 1)
            else:
                yield from self.function(depth)


def run(text: str, bits: int) -> None:
    """Run a program whose conditions come out as the bits say. Raises NameError."""
    state = [bits]

    def condition() -> bool:
        state[0], bit = divmod(state[0], 2)
        return bool(bit)

    class Anything:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    names = dict(vars(builtins))
    names["__import__"] = lambda *_: Stub()
    names["open"] = Anything
    exec(
        compile(text, "train.py", "exec"),
        {"__builtins__": names, "c": condition, "use": lambda *_: None},
    )


def works(text: str, bits: int) -> bool:
    try:
        run(text, bits)
    except NameError:
        return False
    return True


def numbered(text: str, seed: int) -> str:
    """The program with one of the wanted names for every HERE."""
    choice = random.Random(seed)
    while "HERE)" in text or "HERE " in text:
        for end in (")", " "):
            text = text.replace("HERE" + end, choice.choice(list(WANTED)) + end, 1)
    return text


def fixed(text: str, order: random.Random) -> str:
    """The program with every wanted name written and imported."""
    source = source_of(text)
    uses = [x for x in descend(source.tree) if isinstance(x, cst.Name) and x.value in WANTED]
    order.shuffle(uses)
    rewrite = Rewrite()
    for use in uses:
        module, name = WANTED[use.value]
        rewrite.replace(source, use, rewrite.need_import(source, module, name, at=use))
    result = apply({"train.py": source}, [rewrite.fix("test", Safety.SAFE)])
    assert not result.broken, result.broken
    return result.texts.get("train.py", text)


def check(text: str, seed: int) -> None:
    before = text
    for name in WANTED:
        before = before.replace(name, "None")
    after = fixed(text, random.Random(seed))
    for bits in (0, 0b111111111111, 0b10101010101, 0b1010101010, 0b110011, 0b1001011):
        if works(before, bits):
            try:
                run(after, bits)
            except NameError as error:
                pytest.fail(f"{error} (conditions {bits:b})\n{text}\n---- becomes\n{after}")


# Beside the first ones, some that need what few programs do: imports on both branches of an `if`
# and a use inside one of them, a name of the package in a part of the statement that may not run.
@pytest.mark.parametrize("seed", [*range(30), 528, 578])
def test_no_name_is_read_before_its_import(seed: int) -> None:
    for number in range(seed * 10, seed * 10 + 10):
        text = numbered(Programs(number).program(), number)
        compile(text, "train.py", "exec")
        check(text, number)
