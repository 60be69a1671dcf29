"""Questions about FSDP1's API, which have one answer in all releases of torch with FSDP2.

if FSDP:
hasattr(FSDP, "optim_state_dict")
"use_orig_params" in inspect.signature(FSDP.__init__).parameters
"""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.names import FSDP, PARAMETERS

# The parameters of the methods that only FSDP1's class has (torch 2.6 to 2.13).
METHODS = {
    "check_is_root": ("self",),
    "clip_grad_norm_": ("self", "max_norm", "norm_type"),
    "flatten_sharded_optim_state_dict": ("sharded_optim_state_dict", "model", "optim"),
    "fsdp_modules": ("module", "root_only"),
    "full_optim_state_dict": ("model", "optim", "optim_input", "rank0_only", "group"),
    "get_state_dict_type": ("module",),
    "no_sync": ("self",),
    "optim_state_dict": ("model", "optim", "optim_state_dict", "group"),
    "optim_state_dict_to_load": (
        "model", "optim", "optim_state_dict", "is_named_optimizer", "load_directly", "group",
    ),
    "register_comm_hook": ("self", "state", "hook"),
    "rekey_optim_state_dict": (
        "optim_state_dict", "optim_state_key_type", "model", "optim_input", "optim",
    ),
    "scatter_full_optim_state_dict": (
        "full_optim_state_dict", "model", "optim_input", "optim", "group",
    ),
    "set_state_dict_type": (
        "module", "state_dict_type", "state_dict_config", "optim_state_dict_config",
    ),
    "shard_full_optim_state_dict": ("full_optim_state_dict", "model", "optim_input", "optim"),
    "sharded_optim_state_dict": ("model", "optim", "group"),
    "state_dict_type": (
        "module", "state_dict_type", "state_dict_config", "optim_state_dict_config",
    ),
    "summon_full_params": (
        "module", "recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads",
    ),
}  # fmt: skip


def rewrite_expression(inlining: Inlining, node: cst.Call | cst.Comparison) -> bool:
    """Put the answer in the place of a question; whether an expression is one."""
    answer = _question(inlining, node)
    if answer is None or _chooses(inlining, node):
        return False
    inlining.put(node, str(answer))
    return True


def _chooses(inlining: Inlining, node: cst.CSTNode) -> bool:
    """Whether a question decides a test, so that the form of the test has its answer."""
    test, outer = node, inlining.source.parent(node)
    while isinstance(outer, cst.BooleanOperation | cst.UnaryOperation):
        test, outer = outer, inlining.source.parent(outer)
    if not isinstance(outer, cst.If | cst.IfExp) or outer.test is not test:
        return False
    is_elif = isinstance(outer, cst.If) and _is_elif(inlining, outer)
    return not is_elif and _answer(inlining, outer.test) is not None


def _is_elif(inlining: Inlining, node: cst.If) -> bool:
    above = inlining.source.parent(node)
    return isinstance(above, cst.If) and above.orelse is node


def rewrite_choice(inlining: Inlining, node: cst.IfExp) -> bool:
    """Put the side that an answer chooses in the place of `one if question else other`."""
    answer = _answer(inlining, node.test)
    if answer is None:
        return False
    inlining.put_whole(node, inlining.text(node.body if answer else node.orelse))
    return True


def rewrite_if(inlining: Inlining, node: cst.If) -> bool:
    """Put the branch that an answer chooses in the place of an `if`; whether it has this form."""
    source, rewrite = inlining.source, inlining.migration.rewrite
    if _is_elif(inlining, node):
        return False
    answer = _answer(inlining, node.test)
    if answer is None:
        return False
    orelse = node.orelse
    if orelse is None and answer:
        rewrite.unwrap(source, node)
        inlining.changed = True
    elif orelse is None:
        inlining.delete(node)
    elif answer:
        # The next round unwraps what is left.
        _cut(inlining, source.span(node.body)[1], source.span(orelse)[1], "")
    else:
        start, begin = source.span(node)[0], source.span(orelse)[0]
        word = "elif" if isinstance(orelse, cst.If) else "else"
        test = f" not ({inlining.text(node.test)})" if word == "else" else ""
        _cut(inlining, start, begin + len(word), f"if{test}")
    return True


def _cut(inlining: Inlining, start: int, end: int, text: str) -> None:
    inlining.changed = True
    inlining.migration.substitute_span(inlining.source, start, end, text)


def _answer(inlining: Inlining, test: cst.BaseExpression) -> bool | None:
    """The truth of a test that depends on questions about FSDP1's API; None if that is not known."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        answer = _answer(inlining, test.expression)
        return None if answer is None else not answer
    if isinstance(test, cst.BooleanOperation):
        decides = isinstance(test.operator, cst.Or)
        sides = [_answer(inlining, side) for side in (test.left, test.right)]
        if decides in sides:
            return decides
        return not decides if None not in sides else None
    if inlining.migration.fsdp1(test) == FSDP:
        return True
    if isinstance(test, cst.Name):
        found = definitions(inlining.source, test)
        value = found[0].value if found is not None and len(found) == 1 else None
        return _question(inlining, value) if value is not None else None
    return _question(inlining, test)


def _question(inlining: Inlining, node: cst.CSTNode) -> bool | None:
    """The answer of one question; None if an expression is none."""
    if isinstance(node, cst.Call):
        return _has(inlining, node)
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    (only,) = node.comparisons
    found = _parameters(inlining, only.comparator)
    name = _text(node.left)
    if found is None or name is None or not isinstance(only.operator, cst.In | cst.NotIn):
        return None
    return (name in found) is isinstance(only.operator, cst.In)


def _has(inlining: Inlining, node: cst.Call) -> bool | None:
    """The answer of `hasattr(FSDP, "name")` for a name that FSDP1's class has."""
    called = isinstance(node.func, cst.Name) and node.func.value == "hasattr"
    if not called or len(node.args) != 2:
        return None
    if inlining.migration.fsdp1(node.args[0].value) != FSDP:
        return None
    return True if _text(node.args[1].value) in METHODS else None


def _parameters(inlining: Inlining, node: cst.BaseExpression) -> tuple[str, ...] | None:
    """The parameters in `inspect.signature(function).parameters` of a function of FSDP1's class."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value if node.func.attr.value == "keys" else node
    if not isinstance(node, cst.Attribute) or node.attr.value != "parameters":
        return None
    call = inlining.meanings.of(node.value).node
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    if inlining.migration.symbol(call.func) != "inspect.signature":
        return None
    owner, _, method = inlining.migration.fsdp1(call.args[0].value).partition(".")
    if owner != FSDP:
        return None
    if method in ("", "__init__"):
        return (*(("self",) if method else ()), *PARAMETERS)
    return METHODS.get(method)


def _text(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None
