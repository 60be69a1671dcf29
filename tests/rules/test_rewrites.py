"""The rewrites that rules share: one statement at a time, no interpreter."""

from __future__ import annotations

import libcst as cst
import pytest

from fsdplint.diagnostics.finding import Safety
from fsdplint.edits.apply import apply
from fsdplint.edits.rewrite import Rewrite
from fsdplint.fixes.clipping import clip_with_utils
from fsdplint.fixes.hoisting import hoist_collective
from fsdplint.fixes.no_sync import rewrite_no_sync
from fsdplint.fixes.rank_guard import on_rank0
from fsdplint.interpreter import Program
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.layout import descend
from fsdplint.trace import Guard, GuardKind, Ranks


def call(source: Source, start: str) -> cst.Call:
    """The first call whose text starts so."""
    found = [
        node
        for node in descend(source.tree)
        if isinstance(node, cst.Call) and source.code(node).startswith(start)
    ]
    assert found, start
    return min(found, key=lambda node: source.span(node))


def result(source: Source, rewrite: Rewrite) -> str:
    applied = apply({source.path: source}, [rewrite.fix("test", Safety.SAFE)])
    return applied.texts[source.path]


# no_sync -----------------------------------------------------------------------------------------

NO_SYNC = {
    "plain": (
        "with model.no_sync():\n    # accumulate\n    loss.backward()  # here\nstep()\n",
        "model.set_requires_gradient_sync(False)\n"
        "# accumulate\nloss.backward()  # here\n"
        "model.set_requires_gradient_sync(True)\nstep()\n",
    ),
    "one line": (
        "with model.no_sync(): loss.backward()\n",
        "model.set_requires_gradient_sync(False)\nloss.backward()\n"
        "model.set_requires_gradient_sync(True)\n",
    ),
    "chosen in the with": (
        "from contextlib import nullcontext\n\n"
        "with (self.model.no_sync() if (i + 1) % n != 0 else nullcontext()):\n    f()\n",
        "self.model.set_requires_gradient_sync((i + 1) % n == 0)\nf()\n"
        "self.model.set_requires_gradient_sync(True)\n",
    ),
    "chosen the other way round": (
        "import contextlib\nwith contextlib.nullcontext() if last else model.no_sync():\n    f()\n",
        "model.set_requires_gradient_sync(last)\nf()\nmodel.set_requires_gradient_sync(True)\n",
    ),
    "several conditions": (
        "with model.no_sync() if a and not b else nullcontext():\n    f()\n",
        "model.set_requires_gradient_sync(not (a and not b))\nf()\n"
        "model.set_requires_gradient_sync(True)\n",
    ),
    "chosen before": (
        "def run():\n    ctx = model.no_sync() if more else nullcontext()\n    x = 1\n"
        "    with ctx:\n        f(x)\n    return x\n",
        "def run():\n    model.set_requires_gradient_sync(not more)\n    x = 1\n"
        "    f(x)\n    model.set_requires_gradient_sync(True)\n    return x\n",
    ),
    "two with statements in a loop": (
        "for b in c:\n    if x:\n        with model.no_sync():\n            f()\n    else:\n        f()\n",
        "for b in c:\n    if x:\n        model.set_requires_gradient_sync(False)\n        f()\n"
        "        model.set_requires_gradient_sync(True)\n    else:\n        f()\n",
    ),
    "with other contexts": (
        "with model.no_sync(), autocast('cuda'):\n    if a:\n        return\n    f()\n",
        None,
    ),
    "other contexts stay": (
        "with autocast('cuda'), model.no_sync() if a else nullcontext():\n    f()\n",
        "model.set_requires_gradient_sync(not a)\nwith autocast('cuda'):\n    f()\n"
        "model.set_requires_gradient_sync(True)\n",
    ),
    "the first of other contexts": (
        "with model.no_sync(), autocast('cuda'):\n    f()\n",
        "model.set_requires_gradient_sync(False)\nwith autocast('cuda'):\n    f()\n"
        "model.set_requires_gradient_sync(True)\n",
    ),
    "left early": (
        "for b in c:\n    with model.no_sync():\n        if b:\n            break\n        f('''\n  x''')\n",
        "for b in c:\n    model.set_requires_gradient_sync(False)\n    try:\n        if b:\n"
        "            break\n        f('''\n  x''')\n    finally:\n"
        "        model.set_requires_gradient_sync(True)\n",
    ),
    "a loop of its own may break": (
        "with model.no_sync():\n    for b in c:\n        if b:\n            break\n",
        "model.set_requires_gradient_sync(False)\nfor b in c:\n    if b:\n        break\n"
        "model.set_requires_gradient_sync(True)\n",
    ),
    "entered elsewhere": ("stack.enter_context(model.no_sync())\n", None),
    "used twice": ("ctx = model.no_sync()\nwith ctx:\n    f()\nlog(ctx)\n", None),
    "chosen outside the loop": (
        "ctx = model.no_sync() if a else nullcontext()\nfor b in c:\n    with ctx:\n        f()\n",
        None,
    ),
    "another context instead": (
        "with model.no_sync() if a else timer():\n    f()\n",
        None,
    ),
    "named": ("with model.no_sync() as x:\n    f()\n", None),
}


@pytest.mark.parametrize("case", NO_SYNC.values(), ids=NO_SYNC.keys())
def test_no_sync(case: tuple[str, str | None]) -> None:
    before, after = case
    source = Source("train.py", before)
    node = next(
        n
        for n in descend(source.tree)
        if isinstance(n, cst.Call) and source.code(n).endswith("no_sync()")
        and not source.code(n).startswith("stack")
    )  # fmt: skip
    rewrite = Rewrite()
    assert rewrite_no_sync(rewrite, source, node) == (after is not None)
    if after is not None:
        assert result(source, rewrite) == after


def test_no_sync_chosen_as_a_function() -> None:
    source = Source(
        "train.py",
        "import contextlib\n\nfor i in r:\n"
        "    context = model.no_sync if i % 4 else contextlib.nullcontext\n"
        "    with context():\n        f()\n",
    )
    rewrite = Rewrite()
    assert rewrite_no_sync(rewrite, source, call(source, "context()"))
    assert result(source, rewrite) == (
        "for i in r:\n    model.set_requires_gradient_sync(not i % 4)\n    f()\n"
        "    model.set_requires_gradient_sync(True)\n"
    )


# Clipping ----------------------------------------------------------------------------------------

CLIP = {
    "dropped": (
        "import torch\nmodel.clip_grad_norm_(1.0)\n",
        "import torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    "imported": (
        "from torch.nn.utils import clip_grad_norm_\nself.model.clip_grad_norm_(max_norm=c)\n",
        "from torch.nn.utils import clip_grad_norm_\n"
        "clip_grad_norm_(self.model.parameters(), max_norm=c)\n",
    ),
    "by another name": (
        "import torch.nn as tnn\nmodel.clip_grad_norm_(1.0)\n",
        "import torch.nn as tnn\ntnn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    "not imported": (
        "import os\n\nmodel.clip_grad_norm_(1.0)\n",
        "import os\n\nfrom torch.nn.utils import clip_grad_norm_\n\n"
        "clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    "only its item": (
        "import torch\nnorm = model.clip_grad_norm_(1.0)\nlog(norm.item())\n",
        "import torch\nnorm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "log(norm.item())\n",
    ),
    "item at once": (
        "import torch\nlog(model.clip_grad_norm_(1.0).item())\n",
        "import torch\nlog(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())\n",
    ),
    "never used": (
        "import torch\ndef f():\n    norm = model.clip_grad_norm_(1.0)\n",
        "import torch\ndef f():\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    "formatted": (
        "import torch\nnorm = model.clip_grad_norm_(1.0)\nprint(f'{norm:.2f}', norm.item())\n",
        "import torch\n"
        "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n"
        "print(f'{norm:.2f}', norm.item())\n",
    ),
    "returned": (
        "import torch\ndef f():\n    return model.clip_grad_norm_(1.0)\n",
        "import torch\ndef f():\n"
        "    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n",
    ),
    "kept": (
        "import torch\nself.norm = model.clip_grad_norm_(1.0)\n",
        "import torch\n"
        "self.norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()\n",
    ),
    "over several lines": (
        "import torch\nmodel.clip_grad_norm_(\n    1.0,  # gradient clipping\n    norm_type=2,\n)\n",
        "import torch\ntorch.nn.utils.clip_grad_norm_(\n"
        "    model.parameters(), 1.0,  # gradient clipping\n    norm_type=2,\n)\n",
    ),
    "both branches": (
        "import torch\nif a:\n    n = model.clip_grad_norm_(1.0)\nelse:\n    n = other()\n",
        "import torch\nif a:\n    n = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "else:\n    n = other()\n",
    ),
}


@pytest.mark.parametrize("case", CLIP.values(), ids=CLIP.keys())
def test_clipping(case: tuple[str, str]) -> None:
    before, after = case
    source = Source("train.py", before)
    rewrite = Rewrite()
    node = next(
        n
        for n in descend(source.tree)
        if isinstance(n, cst.Call) and source.code(n.func).endswith("model.clip_grad_norm_")
    )
    assert clip_with_utils(rewrite, Program(), source, node)
    assert result(source, rewrite) == after


# Under a test of the rank --------------------------------------------------------------------------

GUARDED = {
    "a line": (
        "import torch.distributed as dist\ntorch.save(a, b)  # keep\n",
        "import torch.distributed as dist\nif dist.get_rank() == 0:\n    torch.save(a, b)  # keep\n",
    ),
    "several lines": (
        "import torch\ndef f():\n    torch.save(\n        {\n            'a': a,  # whole\n        },\n"
        "        b,\n    )\n    g()\n",
        "import torch\ndef f():\n    if torch.distributed.get_rank() == 0:\n        torch.save(\n"
        "            {\n                'a': a,  # whole\n            },\n            b,\n"
        "        )\n    g()\n",
    ),
    "the file is opened for it": (
        "from torch.distributed import get_rank\nwith open(p, 'wb') as f:\n    torch.save(a, f)\n",
        "from torch.distributed import get_rank\nif get_rank() == 0:\n"
        "    with open(p, 'wb') as f:\n        torch.save(a, f)\n",
    ),
    "one of several on a line": (
        "import torch\na = 1; torch.save(a, b); c = 2\n",
        "import torch\na = 1\nif torch.distributed.get_rank() == 0:\n    torch.save(a, b)\nc = 2\n",
    ),
    "tabs": (
        "import torch\nif x:\n\ttorch.save(\n\t\ta,\n\t\tb,\n\t)\n",
        "import torch\nif x:\n\tif torch.distributed.get_rank() == 0:\n\t\ttorch.save(\n"
        "\t\t\ta,\n\t\t\tb,\n\t\t)\n",
    ),
    "its value is used": ("size = torch.save(a, b)\n", None),
    "a string over several lines": ("torch.save(a, '''x\ny''')\n", None),
}


@pytest.mark.parametrize("case", GUARDED.values(), ids=GUARDED.keys())
def test_on_rank0(case: tuple[str, str | None]) -> None:
    before, after = case
    source = Source("train.py", before)
    rewrite = Rewrite()
    assert on_rank0(rewrite, source, call(source, "torch.save")) == (after is not None)
    if after is not None:
        assert result(source, rewrite) == after


OUT = {
    "its statement": (
        "if rank == 0:\n    s = gather(m)\n    save(s)\n",
        "s = gather(m)\nif rank == 0:\n    save(s)\n",
    ),
    "its value": (
        "if rank == 0:\n    # the best\n    save({'m': gather(m)}, p)\n",
        "result = gather(m)\nif rank == 0:\n    # the best\n    save({'m': result}, p)\n",
    ),
    "past a print": (
        "if rank == 0:\n    print('x')\n    os.makedirs(p)\n    s = gather(m)\n    save(s)\n",
        "s = gather(m)\nif rank == 0:\n    print('x')\n    os.makedirs(p)\n    save(s)\n",
    ),
    "after a return": (
        "def f():\n    if rank == 0:\n        return\n    p = 1\n    save(gather(m), p)\n",
        "def f():\n    result = gather(m)\n    if rank == 0:\n        return\n    p = 1\n"
        "    save(result, p)\n",
    ),
    "a barrier at the end": (
        "if rank == 0:\n    save(s)\n    gather()\nx()\n",
        "if rank == 0:\n    save(s)\ngather()\nx()\n",
    ),
    "a barrier at the start": (
        "if rank == 0:\n    gather()\n    save(s)\n",
        "gather()\nif rank == 0:\n    save(s)\n",
    ),
    "a with block": (
        "if rank == 0:\n    with kind(m):\n        s = gather(m)\n    save(s)\n",
        "with kind(m):\n    s = gather(m)\nif rank == 0:\n    save(s)\n",
    ),
    "not past what it needs": ("if rank == 0:\n    m = best()\n    s = gather(m)\n", None),
    "not past what may change it": ("if rank == 0:\n    m.eval()\n    s = gather(m)\n", None),
    "past the removal of a file": (
        "if rank == 0:\n    for old in files:\n        old.unlink()\n    s = gather(m)\n    save(s)\n",
        "s = gather(m)\nif rank == 0:\n    for old in files:\n        old.unlink()\n    save(s)\n",
    ),
    "not past what removes an element of it": (
        "if rank == 0:\n    m.remove('x')\n    s = gather(m)\n",
        None,
    ),
    "not past a use of the name": ("if rank == 0:\n    t = s\n    s = gather(m)\n", None),
    "not out of a loop": ("if rank == 0:\n    for m in n:\n        save(gather(m))\n", None),
    "not out of another condition": ("if rank == 0:\n    if a:\n        save(gather(m))\n", None),
    "not where there is an else": ("if rank == 0:\n    s = gather(m)\nelse:\n    s = 1\n", None),
    "not with a save in the block": (
        "if rank == 0:\n    with kind(m):\n        save(gather(m))\n",
        None,
    ),
    "not from behind an and": ("if rank == 0:\n    s = a and gather(m)\n", None),
    "one of several conditions that will do": (
        "if world_size == 1 or rank == 0:\n    s = gather(m)\n    save(s)\n",
        "s = gather(m)\nif world_size == 1 or rank == 0:\n    save(s)\n",
    ),
    "after a return for two reasons": (
        "def f():\n    if a and not rank == 0:\n        return\n    save(gather(m))\n",
        "def f():\n    result = gather(m)\n    if a and not rank == 0:\n        return\n"
        "    save(result)\n",
    ),
    "not from both an and and an or": (
        "if a or (b and rank == 0):\n    gather()\n",
        None,
    ),
    "not where the test binds a name": (
        "if (r := rank) == 0:\n    save(gather(r))\n",
        None,
    ),
    "not out of a list": ("if rank == 0:\n    save([gather(p) for p in m], x)\n", None),
    "not out of a set": ("if rank == 0:\n    save({gather(p) for p in m}, x)\n", None),
    "not out of a dict": ("if rank == 0:\n    save({n: gather(p) for n, p in m}, x)\n", None),
    "not out of a generator": ("if rank == 0:\n    total = sum(gather(p) for p in m)\n", None),
    "not out of a comprehension in another": (
        "if rank == 0:\n    save([[p for p in gather(q)] for q in m], x)\n",
        None,
    ),
    "not out of a lambda": ("if rank == 0:\n    save(map(lambda p: gather(p), m))\n", None),
    "not out of a function": ("if rank == 0:\n    def f(p):\n        gather(p)\n    f(m)\n", None),
    "not out of a match": (
        "if rank == 0:\n    match a:\n        case 1:\n            gather()\n",
        None,
    ),
    "not alone out of a with": ("if rank == 0:\n    with open(p) as f:\n        gather(f)\n", None),
    "not with what only one rank has": (
        "state = None\nif rank == 0:\n    state = load()\nif rank == 0:\n    gather(m, state)\n",
        None,
    ),
    "not with one of two choices": (
        "state = load() if rank == 0 else None\nif rank == 0:\n    gather(m, state)\n",
        None,
    ),
    "not with what the test asks for": (
        "if rank_zero_state is not None:\n    gather(rank_zero_state)\n",
        None,
    ),
    "with a number that the test compares": (
        "if rank == 0:\n    s = gather(m, rank)\n",
        "s = gather(m, rank)\nif rank == 0:\n    pass\n",
    ),
    "not past its own line": ("if rank == 0:\n    p = best(); gather(p)\n", None),
}


@pytest.mark.parametrize("case", OUT.values(), ids=OUT.keys())
def test_move_out(case: tuple[str, str | None]) -> None:
    before, after = case
    source = Source("train.py", before)
    test = next(n.test for n in descend(source.tree) if isinstance(n, cst.If)
                and "rank" in source.code(n.test))  # fmt: skip
    guard = Guard(GuardKind.RANK, "rank == 0", True, NodeSite(source, test), Ranks.ONE)
    rewrite = Rewrite()
    site = NodeSite(source, call(source, "gather("))
    assert hoist_collective(rewrite, site, guard) == (after is not None)
    if after is not None:
        assert result(source, rewrite) == after


def test_move_out_keeps_to_tests_of_the_rank_alone() -> None:
    source = Source("train.py", "if rank == 0 and best:\n    s = gather(m)\n")
    comparison = next(n for n in descend(source.tree) if isinstance(n, cst.Comparison))
    guard = Guard(GuardKind.RANK, "rank == 0", True, NodeSite(source, comparison), Ranks.ONE)
    assert not hoist_collective(Rewrite(), NodeSite(source, call(source, "gather(")), guard)


GUARDED_TOO = [
    "if rank == 0 and best:\n    s = gather(m)\n",
    "if step % 1000 == 0 and rank == 0:\n    gather()\n",
    "if step % 1000 == 0 and rank == 0:\n    save(s)\n    gather()\n",
    "if rank == 0 and path is not None:\n    save(gather(path))\n",
    "if not (step % 10 or rank != 0):\n    gather()\n",
    "def f():\n    if step % 1000 or rank != 0:\n        return\n    gather()\n",
    "if rank == 0 and (due := step % 10 == 0):\n    gather()\n",
]


@pytest.mark.parametrize("before", GUARDED_TOO)
def test_move_out_keeps_the_other_conditions(before: str) -> None:
    source = Source("train.py", before)
    test = next(n.test for n in descend(source.tree) if isinstance(n, cst.If))
    guard = Guard(GuardKind.RANK, source.code(test), True, NodeSite(source, test), Ranks.ONE)
    assert not hoist_collective(Rewrite(), NodeSite(source, call(source, "gather(")), guard)
