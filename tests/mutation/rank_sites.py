"""The statements of a file that every rank has to run."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP1, FSDP2, FileSyntax, argument
from planting import text_of

_COLLECTIVES = ("barrier", "all_reduce", "broadcast", "all_gather", "broadcast_object_list")
_STATES = ("get_model_state_dict", "get_state_dict", "get_optimizer_state_dict")
Site = tuple[str, cst.SimpleStatementLine]  # its kind, and the statement


def sites(syntax: FileSyntax) -> Iterator[Site]:
    """The statements under no test of the rank that all ranks have to run, by kind."""
    found: dict[cst.SimpleStatementLine, str] = {}
    for kind, call in _calls(syntax):
        statement = syntax.statement(call)
        if statement is None or statement in found or syntax.is_guarded_by_rank(statement):
            continue
        if not m.matches(statement.body[0], m.Expr() | m.Assign() | m.AnnAssign() | m.AugAssign()):
            continue
        if not _is_rank_function(syntax, statement):
            found[statement] = kind
    yield from ((kind, statement) for statement, kind in found.items())


def _is_rank_function(syntax: FileSyntax, node: cst.CSTNode) -> bool:
    """Whether an earlier statement of the function sends some ranks away."""
    for one in syntax.chain(node):
        for before in syntax.block(one):
            if before is one:
                break
            if isinstance(before, cst.If) and m.findall(before.body, m.Return() | m.Continue()):
                words = text_of(before.test).lower()
                if any(word in words for word in ("rank", "main", "master")):
                    return True
    return False


def _calls(syntax: FileSyntax) -> Iterator[tuple[str, cst.Call]]:
    for call in syntax.calls(*_COLLECTIVES, of="torch.distributed."):
        if argument(call, "group") is None and not _may_be_alone(syntax, call):
            yield "collective", call
    for call in syntax.calls(*_STATES):
        if "full_state_dict=True" in text_of(syntax.scope(call)):
            yield "state", call
    for call in syntax.calls("save", of="torch.distributed.checkpoint."):
        if argument(call, "process_group") is None:
            yield "sharded save", call
    yield from _of_models(syntax)
    sharded = [
        name
        for name, built in syntax.optimizers.items()
        if any(f"{root}.parameters()" in text_of(built) for root in syntax.roots)
    ]
    for call in syntax.method_calls("step", sharded):
        yield "step", call


def _of_models(syntax: FileSyntax) -> Iterator[tuple[str, cst.Call]]:
    for root in syntax.roots_of(FSDP1):
        for call in syntax.method_calls("state_dict", [root]):
            if any(
                isinstance(one, cst.With) and "FULL_STATE_DICT" in text_of(one)
                for one in syntax.ancestors(call)
            ):
                yield "state", call
        for call in syntax.method_calls("clip_grad_norm_", [root]):
            yield "clip", call
    for call in syntax.calls("clip_grad_norm_", of="torch.nn.utils."):
        roots = syntax.roots_of(FSDP2)
        if call.args and any(text_of(call.args[0].value) == f"{r}.parameters()" for r in roots):
            yield "clip", call
    forwards = [c for c in syntax.all_calls if text_of(c.func) in syntax.roots]
    forwards = [c for c in forwards if not _comes_before_sharding(syntax, c)]
    for call in forwards:
        yield "forward", call
    scopes = {syntax.scope(call) for call in forwards}
    for call in syntax.method_calls("backward"):
        if syntax.scope(call) in scopes:
            yield "backward", call


def _comes_before_sharding(syntax: FileSyntax, call: cst.Call) -> bool:
    """Whether a call of a model stands above the sharding in its function."""
    scope = syntax.scope(call)
    return any(
        syntax.scope(one) is scope and syntax.line(one) > syntax.line(call)
        for one in syntax.sharding
    )


def _may_be_alone(syntax: FileSyntax, call: cst.Call) -> bool:
    """Whether the program may run a collective before it has another rank."""
    return "world_size == 1" in syntax.tests(call)
