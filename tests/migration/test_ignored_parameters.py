"""Parameters that FSDP1 ignores, in the spellings that programs use: frozen ones migrate."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import HEAD, plan

# For each spelling, what `ignored_params` becomes.
FROZEN = {
    "list(net.blocks[0].parameters())": "set(net.blocks[0].parameters())",
    "net.blocks[0].parameters()": "set(net.blocks[0].parameters())",
    "set(net.blocks[0].parameters())": "set(net.blocks[0].parameters())",
    "[*net.blocks[0].parameters()]": "set([*net.blocks[0].parameters()])",
    "[p for p in net.blocks[0].parameters()]": "set([p for p in net.blocks[0].parameters()])",
    "[net.blocks[0].linear.weight, net.blocks[0].linear.bias]": (
        "set([net.blocks[0].linear.weight, net.blocks[0].linear.bias])"
    ),
    "[p for n, p in net.blocks[0].named_parameters()]": (
        "set([p for n, p in net.blocks[0].named_parameters()])"
    ),
}
TRAINED = (
    "list(net.parameters())",
    "[p for n, p in net.named_parameters() if 'linear' in n]",
    "[net.blocks[0].linear.weight, net.blocks[1].linear.weight]",
    "[*net.blocks[0].parameters(), *net.blocks[1].parameters()]",
    "list(net.blocks[index].parameters())",
)
FREEZE = "net = Net()\nnet.blocks[0].requires_grad_(False)\n"


@pytest.mark.parametrize("spelling", FROZEN)
def test_frozen_parameters(tmp_path: Path, spelling: str) -> None:
    _, after = plan(tmp_path, FREEZE + f"model = FSDP(net, ignored_states={spelling})\n")
    expected = f"fully_shard(net, ignored_params={FROZEN[spelling]})"
    assert "".join(expected.split()) in "".join(after.split())


@pytest.mark.parametrize("spelling", FROZEN)
def test_a_variable_of_frozen_parameters(tmp_path: Path, spelling: str) -> None:
    body = f"ignored = {spelling}\nmodel = FSDP(net, ignored_states=ignored)\n"
    found, after = plan(tmp_path, FREEZE + body)
    if spelling.startswith("net"):  # an iterator, which can be used once
        assert "ignored_states" in str(found.blockers)
    else:
        assert "fully_shard(net, ignored_params=set(ignored))" in after


BY_KEY = """
kept = {{"side": list(net.blocks[0].parameters()), "all": list(net.parameters())}}
model = FSDP(net, ignored_states={value})
"""


def test_frozen_parameters_in_a_dict(tmp_path: Path) -> None:
    _, after = plan(tmp_path, FREEZE + BY_KEY.format(value='kept["side"]'))
    assert 'ignored_params=set(kept["side"])' in after
    for value in ('kept["all"]', 'kept[os.environ["KEPT"]]'):
        found, _ = plan(tmp_path, FREEZE + BY_KEY.format(value=value))
        assert "ignored_states" in str(found.blockers)


@pytest.mark.parametrize("sign", ["+", "|"])
def test_parameters_of_two_modules(tmp_path: Path, sign: str) -> None:
    text = "list({})" if sign == "+" else "set({})"
    ends = [text.format(f"net.blocks[{number}].parameters()") for number in (0, 1)]
    body = f"model = FSDP(net, ignored_states={f' {sign} '.join(ends)})\n"
    found, _ = plan(tmp_path, FREEZE + body)
    assert "ignored_states" in str(found.blockers)
    _, after = plan(tmp_path, FREEZE + "net.blocks[1].requires_grad_(False)\n" + body)
    assert f"set({f' {sign} '.join(ends)})" in after


def test_frozen_parameters_of_an_attribute(tmp_path: Path) -> None:
    _, after = plan(
        tmp_path,
        """
        class Trainer:
            def __init__(self):
                self.model = Net()
                self.model.blocks[0].requires_grad_(False)
                frozen = list(self.model.blocks[0].parameters())
                self.model = FSDP(self.model, ignored_states=frozen)


        trainer = Trainer()
        """,
    )
    assert "fully_shard(self.model, ignored_params=set(frozen))" in after


@pytest.mark.parametrize("spelling", TRAINED)
def test_parameters_that_may_be_trained(tmp_path: Path, spelling: str) -> None:
    found, _ = plan(tmp_path, FREEZE + f"model = FSDP(net, ignored_states={spelling})\n")
    assert "ignored_states" in str(found.blockers)


@pytest.mark.parametrize(
    "freeze",
    [
        "if args.freeze:\n    net.blocks[0].requires_grad_(False)\n",
        "net.blocks[0].requires_grad_(False)\nnet.requires_grad_(True)\n",
    ],
)
def test_parameters_that_are_not_always_frozen(tmp_path: Path, freeze: str) -> None:
    text = f"net = Net()\n{freeze}model = FSDP(net, ignored_states=net.blocks[0].parameters())\n"
    assert "ignored_states" in str(plan(tmp_path, text)[0].blockers)


MODULES = """
net.side = nn.Linear(8, 8)
net.side.requires_grad_(False)
model = FSDP(net, ignored_states=[net.side])
"""


@pytest.mark.parametrize(
    "optimizer",
    [
        "torch.optim.AdamW(model.parameters(), foreach=True)",
        "torch.optim.AdamW(model.parameters(), **options)",
        "torch.optim.LBFGS(model.parameters())",
    ],
)
def test_ignored_modules_whose_optimizer_may_mix_tensors(tmp_path: Path, optimizer: str) -> None:
    body = f"""
        options = dict(lr=float(os.environ["RATE"]))
        net = Net()
        model = FSDP(net, ignored_modules=[net.blocks[0]])
        optimizer = {optimizer}
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    """
    found, _ = plan(tmp_path, body)
    assert any("ignored_modules" in one.reason for one in found.blockers)


@pytest.mark.parametrize(
    "clip",
    ["model.clip_grad_norm_(1.0)", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
)
def test_ignored_modules_beside_clipping(tmp_path: Path, clip: str) -> None:
    """A norm of sharded and plain gradients raises RuntimeError."""
    body = f"""
        net = Net()
        model = FSDP(net, ignored_modules=[net.blocks[0]])
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 8)).sum().backward()
        {clip}
        optimizer.step()
    """
    found, _ = plan(tmp_path, body)
    assert any("ignored_modules" in one.reason for one in found.blockers)


TRAINED_PART = """
ignored = [net.blocks[0]]
model = FSDP(net, ignored_modules=ignored)
optimizer = {optimizer}
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    "parameters",
    [
        "model.parameters()",
        "[p for p in model.parameters() if p.requires_grad]",
        '[{"params": list(model.parameters()), "lr": 0.1}]',
    ],
)
def test_an_optimizer_of_both_kinds_steps_singly(tmp_path: Path, parameters: str) -> None:
    """On GPUs, foreach is the default of torch's optimizers, and refuses both kinds together."""
    optimizer = f"torch.optim.AdamW({parameters}, lr=0.1)"
    _, after = plan(tmp_path, "net = Net()" + TRAINED_PART.format(optimizer=optimizer))
    assert f"torch.optim.AdamW({parameters}, lr=0.1, foreach=False)" in after


@pytest.mark.parametrize(
    ("optimizer", "head"),
    [
        ("torch.optim.AdamW(model.parameters(), lr=0.1)", HEAD.replace('"nccl"', '"gloo"')),
        ("torch.optim.AdamW(net.blocks[0].parameters(), lr=0.1)", HEAD),
    ],
)
def test_an_optimizer_of_one_kind_or_on_the_cpu(tmp_path: Path, optimizer: str, head: str) -> None:
    _, after = plan(tmp_path, "net = Net()" + TRAINED_PART.format(optimizer=optimizer), head)
    assert "fully_shard(" in after and "foreach" not in after


def test_frozen_modules_as_ignored_states(tmp_path: Path) -> None:
    _, after = plan(tmp_path, FREEZE + MODULES)
    expected = "ignored_params=set(net.side.parameters())"
    assert expected in after
    found, _ = plan(tmp_path, FREEZE + MODULES.replace("net.side.requires_grad_(False)\n", ""))
    assert "`ignored_states`" in str(found.blockers)


RETURNED = """
def ignored_of(net):
    print(net)
    return 1, [net.side]


net.side = nn.Linear(8, 8)
net.side.requires_grad_(False)
number, ignored = ignored_of(net)
model = FSDP(net, ignored_modules=ignored)
"""


def test_frozen_modules_that_a_function_returns(tmp_path: Path) -> None:
    _, after = plan(tmp_path, FREEZE + RETURNED)
    assert "ignored_params={p for module in ignored for p in module.parameters()}" in after
    found, _ = plan(tmp_path, FREEZE + RETURNED.replace("net.side.requires_grad_(False)\n", ""))
    assert "`ignored_modules`" in str(found.blockers)


FUNCTION = """
def build(net, ignored=None):
    return FSDP(net, ignored_modules=ignored)


class Builder:
    make = build


net = Net()
"""
METHODS = """
class Trainer:
    def __init__(self, net, ignored=None):
        self.model = FSDP(net, ignored_modules=ignored)


net = Net()
"""
SHARD = METHODS.replace("__init__", "shard")
# Calls that may give a parameter ignored modules: with the module that may be trained, and without.
CALLS = (
    (FUNCTION, "model = build(net{})"),
    (FUNCTION, "model = functools.partial(build{})(net)"),
    (FUNCTION, "model = Builder.make(net{})"),
    (METHODS, "trainer = Trainer(net{})"),
    (SHARD, "Trainer().shard(net{})"),
)


@pytest.mark.parametrize(("program", "call"), CALLS)
@pytest.mark.parametrize("given", ["", ", ignored=[]", ", ignored=[net.blocks[0]]"])
def test_parameters_of_ignored_modules(tmp_path: Path, program: str, call: str, given: str) -> None:
    found, _ = plan(tmp_path, program + call.format(given))
    codes = {one.blocker.code for one in found.blockers}
    assert codes == ({"FSDP201-ignored-perhaps-trained"} if "blocks" in given else set())


@pytest.mark.parametrize(
    ("program", "call"),
    [(METHODS, "trainer = Trainer(net, [net.blocks[0]])"), (SHARD, "Trainer().shard(net, [net])")],
)
def test_ignored_modules_as_positional_arguments_of_methods(
    tmp_path: Path, program: str, call: str
) -> None:
    assert "`ignored_modules`" in str(plan(tmp_path, program + call)[0].blockers)


OF_A_LIBRARY = """
from transformers import AutoModel


def shard(model, ignored_modules=None):
    return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), ignored_modules=ignored_modules)


reference = AutoModel.from_pretrained("gpt2")
for parameter in reference.parameters():
    parameter.requires_grad = {frozen}
embedding = reference.model.embed_tokens.to("cuda").to(torch.float16)
reference = shard(reference, ignored_modules=[embedding])
"""


def test_a_part_of_a_frozen_model_of_a_library(tmp_path: Path) -> None:
    body = OF_A_LIBRARY.replace("{Block}", "[Block]").format(frozen="False")
    found, after = plan(tmp_path, body)
    assert not found.blockers and "in ignored_modules or ()" in after
    direct = body[: body.index("def shard")] + body[body.index("reference =") :]
    direct = direct.replace("shard(reference, ignored", "FSDP(reference, ignored")
    found, after = plan(tmp_path, direct)
    assert not found.blockers and "ignored_params=set(embedding.parameters())" in after
    for other in (body.replace("= False", "= True"), direct.replace("= False", "= True")):
        found, _ = plan(tmp_path, other)
        assert [one.blocker.code for one in found.blockers] == ["FSDP201-ignored-perhaps-trained"]


def test_the_blocker_is_at_the_call_with_trained_parameters(tmp_path: Path) -> None:
    body = OF_A_LIBRARY.replace("{Block}", "[Block]").format(frozen="False")
    trained = 'model = AutoModel.from_pretrained("gpt2")\n'
    trained += "model = shard(model, ignored_modules=[model.model.embed_tokens])\n"
    for text in (
        body + trained,
        body.replace("reference = AutoModel", trained + "reference = Auto"),
    ):
        found, _ = plan(tmp_path, text.replace("Auto.", "AutoModel."))
        (blocker,) = found.blockers
        assert blocker.source.code(blocker.node) == "[model.model.embed_tokens]"


def test_a_model_that_is_frozen_where_it_is_built(tmp_path: Path) -> None:
    body = """
    from transformers import AutoModel

    coefficient = float(os.environ["COEFFICIENT"])
    if coefficient > 0:
        reference = AutoModel.from_pretrained("gpt2")
        {0}
        reference = FSDP(reference, ignored_modules=[reference.embed])
    else:
        reference = None
    """
    found, after = plan(tmp_path, body.replace("{0}", "reference.requires_grad_(False)"))
    assert not found.blockers and "reference.embed" in after
    doubtful = 'if os.environ["FREEZE"]:\n            reference.requires_grad_(False)'
    found, _ = plan(tmp_path, body.replace("{0}", doubtful))
    assert [one.blocker.code for one in found.blockers] == ["FSDP201-ignored-perhaps-trained"]


PRECISION = "MixedPrecision(param_dtype=torch.bfloat16)"
IGNORING = {
    "by position": f"model = FSDP(net, None, None, None, None, None, {PRECISION}, [net.blocks[0]])",
    "partial": (
        f"build = functools.partial(FSDP, mixed_precision={PRECISION}, "
        "ignored_modules=[net.blocks[0]])\nmodel = build(net)"
    ),
    "dict": (
        f"options = {{'ignored_modules': [net.blocks[0]], 'mixed_precision': {PRECISION}}}\n"
        "model = FSDP(net, **options)"
    ),
    "enable_wrap": (
        f"with enable_wrap(wrapper_cls=FSDP, mixed_precision={PRECISION}, "
        "ignored_modules=[net.blocks[0]]):\n    model = wrap(net)"
    ),
}
AVERAGE = """
with torch.no_grad(), FSDP.summon_full_params(model):
    for old, new in zip(averaged.parameters(), model.parameters()):
        old.lerp_(new.to(old.dtype), 0.1)
"""


@pytest.mark.parametrize("spelling", IGNORING)
def test_loops_over_parameters_of_which_some_are_ignored(tmp_path: Path, spelling: str) -> None:
    """Ignored parameters are no DTensors: `new.full_tensor()` would raise AttributeError."""
    head = "import copy\n" + FREEZE + "averaged = copy.deepcopy(net)\n"
    found, after = plan(tmp_path, head + IGNORING[spelling] + AVERAGE)
    assert not found.blockers
    assert "gathered_parameters(model)" in after
    assert "new.full_tensor()" not in after
