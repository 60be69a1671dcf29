"""Forms of no_sync, and what becomes of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from forms import HEAD, migrated, plan

FORMS = {
    "a question for no_sync": (
        """
        model = FSDP(Net())
        for i in range(4):
            if i < 3 and hasattr(model, "no_sync"):
                with model.no_sync():
                    model(i).sum().backward()
            else:
                model(i).sum().backward()
        """,
        """
        model = fully_shard(Net())
        for i in range(4):
            if i < 3 and isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(False)
                model(i).sum().backward()
                model.set_requires_gradient_sync(True)
            else:
                model(i).sum().backward()
        """,
    ),
    "what a test says where nobody calls": (
        """
        def clip(model, limit):
            if isinstance(model, FSDP):
                return model.clip_grad_norm_(limit)
            return nn.utils.clip_grad_norm_(model.parameters(), limit)


        def inner(model):
            return model.module if isinstance(model, FSDP) else model


        model = FSDP(Net())
        """,
        """
        def clip(model, limit):
            if isinstance(model, FSDPModule):
                return torch.nn.utils.clip_grad_norm_(model.parameters(), limit).full_tensor()
            return nn.utils.clip_grad_norm_(model.parameters(), limit)


        def inner(model):
            return model


        model = fully_shard(Net())
        """,
    ),
    "no_sync looked for in a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            hold = net.no_sync if hasattr(net, "no_sync") and i < 3 else None
            with hold() if hold is not None else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            hold = partial(without_gradient_sync, net) if (hasattr(net, "no_sync") or hasattr(net, "set_requires_gradient_sync")) and i < 3 else None
            with hold() if hold is not None else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync chosen for a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            with net.no_sync() if i != 3 else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        for i in range(4):
            with without_gradient_sync(net) if i != 3 else nullcontext():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync that a variable keeps from one time to the next": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        hold = nullcontext
        for i in range(4):
            if isinstance(net, FSDP) and i != 3:
                hold = net.no_sync
            with hold():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        hold = nullcontext
        for i in range(4):
            if isinstance(net, FSDPModule) and i != 3:
                hold = partial(without_gradient_sync, net)
            with hold():
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync of a model that may have several wrappers": (
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            net = FSDP(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        if hasattr(net, "no_sync"):
            with net.no_sync():
                net(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import nullcontext

        net = Net()
        if os.environ.get("SHARD"):
            fully_shard(net)
        elif os.environ.get("COPY"):
            net = nn.parallel.DistributedDataParallel(net)
        if (hasattr(net, "no_sync") or hasattr(net, "set_requires_gradient_sync")):
            with without_gradient_sync(net):
                net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync in a dict": (
        """
        net = FSDP(Net())
        contexts = {True: net.no_sync}
        with contexts[True]():
            net(torch.ones(2, 8)).sum().backward()
        """,
        """
        net = fully_shard(Net())
        contexts = {True: partial(without_gradient_sync, net)}
        with contexts[True]():
            net(torch.ones(2, 8)).sum().backward()
        """,
    ),
    "no_sync held for a model that may be DDP's": (
        """
        from contextlib import nullcontext

        model = Net()
        if os.environ.get("FSDP"):
            model = FSDP(model)
        else:
            model = nn.parallel.DistributedDataParallel(model)
        for i in range(4):
            context = nullcontext
            # Only the last one reduces.
            if isinstance(model, FSDP) and i != 3:
                context = model.no_sync
            with context():
                model(torch.ones(2, 8)).sum().backward()
        for i in range(4):
            maybe_no_sync = nullcontext()
            if i != 3 and isinstance(model, FSDP):
                maybe_no_sync = model.no_sync()
            with maybe_no_sync:
                if i == int(os.environ["PARTS"]):
                    break
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        model = Net()
        if os.environ.get("FSDP"):
            fully_shard(model)
        else:
            model = nn.parallel.DistributedDataParallel(model)
        for i in range(4):
            # Only the last one reduces.
            if isinstance(model, FSDPModule) and i != 3:
                model.set_requires_gradient_sync(False)
            model(torch.ones(2, 8)).sum().backward()
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(True)
        for i in range(4):
            if i != 3 and isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(False)
            try:
                if i == int(os.environ["PARTS"]):
                    break
                model(torch.ones(2, 8)).sum().backward()
            finally:
                if isinstance(model, FSDPModule):
                    model.set_requires_gradient_sync(True)
        """,
    ),
    "no_sync in a loop that goes on after an exception": (
        """
        from contextlib import nullcontext

        model = FSDP(Net())
        for i in range(4):
            try:
                with model.no_sync():
                    model(torch.ones(2, 8)).sum().backward()
            except RuntimeError as error:
                print(error)
            context = model.no_sync if i != 3 else nullcontext
            with context():
                if i == 2:
                    continue
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        model = fully_shard(Net())
        for i in range(4):
            try:
                model.set_requires_gradient_sync(False)
                try:
                    model(torch.ones(2, 8)).sum().backward()
                finally:
                    model.set_requires_gradient_sync(True)
            except RuntimeError as error:
                print(error)
            model.set_requires_gradient_sync(i == 3)
            try:
                if i == 2:
                    continue
                model(torch.ones(2, 8)).sum().backward()
            finally:
                model.set_requires_gradient_sync(True)
        """,
    ),
    "no_sync on a stack under a test, and as a result": (
        """
        from contextlib import ExitStack, nullcontext

        model = FSDP(Net())


        def held(i):
            if i < 2:
                return model.no_sync()
            return nullcontext()


        for i in range(4):
            with ExitStack() as stack:
                if i != 3:
                    stack.enter_context(model.no_sync())
                model(torch.ones(2, 8)).sum().backward()
            with held(i):
                model(torch.ones(2, 8)).sum().backward()
        """,
        """
        from contextlib import ExitStack, nullcontext

        model = fully_shard(Net())


        def held(i):
            if i < 2:
                return without_gradient_sync(model)
            return nullcontext()


        for i in range(4):
            with ExitStack() as stack:
                if i != 3:
                    stack.enter_context(without_gradient_sync(model))
                model(torch.ones(2, 8)).sum().backward()
            with held(i):
                model(torch.ones(2, 8)).sum().backward()
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), list(FORMS.values()), ids=list(FORMS))
def test_a_form_becomes(before: str, after: str, tmp_path: Path) -> None:
    assert migrated(tmp_path, before).strip() == textwrap.dedent(after).strip()


@pytest.mark.parametrize("name", [name for name in FORMS if "several wrappers" in name])
def test_a_model_with_another_wrapper_keeps_its_no_sync(name: str, tmp_path: Path) -> None:
    _, text = plan(tmp_path, FORMS[name][0])
    other = """
    if not hasattr(model, "set_requires_gradient_sync"):
        with model.no_sync():
            yield
        return
"""
    assert other in text


def test_a_helper_uses_contextlib_as_the_file_imports_it(tmp_path: Path) -> None:
    body = """
    def sync(model, last):
        return contextlib.nullcontext() if last else model.no_sync()


    model = FSDP(Net())
    for i in range(4):
        with sync(model, i == 3):
            model(i).sum().backward()
    """
    _, text = plan(tmp_path, body, "import contextlib\n" + HEAD)
    assert "@contextlib.contextmanager\n" in text and "from contextlib" not in text
