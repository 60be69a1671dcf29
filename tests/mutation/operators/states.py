"""State dicts: taken, saved and loaded in the wrong layout or on the wrong ranks."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from file_syntax import FSDP2, FileSyntax, argument, without
from mutation_operator import Plan, operator
from planting import text_of


def _full_states(syntax: FileSyntax) -> Iterator[tuple[cst.Call, str]]:
    """The calls that gather a model's state into a name that the function saves."""
    for call in syntax.calls("get_model_state_dict"):
        scope = text_of(syntax.scope(call))
        for target in syntax.targets(call):
            saved = [
                text_of(c) for c in syntax.calls("save") if syntax.scope(c) is syntax.scope(call)
            ]
            if "full_state_dict=True" in scope and any(target in text for text in saved):
                if not any("distributed" in syntax.canonical(c) for c in syntax.calls("save")):
                    yield call, text_of(call.args[0].value) if call.args else ""


@operator("FSDP301")
def state_not_gathered(syntax: FileSyntax) -> Iterator[Plan]:
    """The state dict of a sharded model is saved as it is."""
    for call, model in _full_states(syntax):
        if m.matches(call.args[0].value, m.Name() | m.Attribute()):
            yield Plan(call, {call: cst.parse_expression(f"{model}.state_dict()")})


@operator("FSDP301")
def options_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """The state dict is taken without the option that gathers it, and saved."""
    for call, _ in _full_states(syntax):
        changed = without(call, "options")
        if len(changed.args) < len(call.args):
            yield Plan(call, {call: changed})


@operator("FSDP301")
def full_option_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """`StateDictOptions` does not ask for the whole state, which is saved."""
    scopes = {syntax.scope(call) for call, _ in _full_states(syntax)}
    for call in syntax.calls("StateDictOptions"):
        if syntax.scope(call) in scopes and argument(call, "full_state_dict") is not None:
            yield Plan(call, {call: without(call, "full_state_dict", "broadcast_from_rank0")})


@operator("FSDP302")
def plain_load(syntax: FileSyntax) -> Iterator[Plan]:
    """A whole state dict is loaded by `load_state_dict`."""
    for call in syntax.calls("set_model_state_dict"):
        scope = text_of(syntax.scope(call))
        if "full_state_dict=True" in scope and "broadcast_from_rank0=True" not in scope:
            if len(call.args) >= 2 and "torch.load(" in scope:
                state = argument(call, "model_state_dict", 1)
                if state is not None:
                    model, value = text_of(call.args[0].value), text_of(state.value)
                    load = cst.parse_expression(f"{model}.load_state_dict({value})")
                    yield Plan(call, {call: load})


@operator("FSDP302")
def load_without_options(syntax: FileSyntax) -> Iterator[Plan]:
    """A whole state dict is loaded by `set_model_state_dict` without the option that says so."""
    for call in syntax.calls("set_model_state_dict"):
        scope = text_of(syntax.scope(call))
        if "full_state_dict=True" in scope and "broadcast_from_rank0=True" not in scope:
            changed = without(call, "options")
            if len(changed.args) < len(call.args) and "torch.load(" in scope:
                yield Plan(call, {call: changed})


@operator("FSDP303")
def every_rank_writes(syntax: FileSyntax) -> Iterator[Plan]:
    """Every rank writes the state that only rank 0 has: the test of the rank is missing."""
    for call in syntax.calls("save"):
        if syntax.canonical(call) != "torch.save" or len(call.args) < 2:
            continue
        tests = [one for one in syntax.chain(call) if isinstance(one, cst.If)]
        scope = text_of(syntax.scope(call))
        gathered = "full_state_dict=True" in scope and "cpu_offload=True" in scope
        if not gathered and "rank0_only=True" not in scope:
            continue
        if len(tests) == 1 and tests[0].orelse is None and syntax.is_guarded_by_rank(call):
            if "rank" in text_of(call.args[1].value).lower() or "and" in text_of(tests[0].test):
                continue
            body = tests[0].body.body
            if all(isinstance(one, cst.SimpleStatementLine | cst.If) for one in body):
                yield Plan(call, {tests[0]: list(body)})  # type: ignore[arg-type]


@operator("FSDP304")
def module_pickled(syntax: FileSyntax) -> Iterator[Plan]:
    """The sharded model itself is saved in the place of its state."""
    for call, model in _full_states(syntax):
        if syntax.roots.get(model) == FSDP2 or syntax.version == FSDP2:
            yield Plan(call, {call: cst.parse_expression(model)})


@operator("FSDP310")
def not_broadcast(syntax: FileSyntax) -> Iterator[Plan]:
    """The state that only rank 0 has read is not broadcast."""
    for call in syntax.calls("StateDictOptions"):
        scope = text_of(syntax.scope(call))
        if "torch.load(" not in scope or "set_model_state_dict" not in scope:
            continue
        loads = [c for c in syntax.calls("load") if syntax.canonical(c) == "torch.load"]
        if argument(call, "broadcast_from_rank0") is not None:
            if any(syntax.is_guarded_by_rank(load) for load in loads):
                yield Plan(call, {call: without(call, "broadcast_from_rank0")})


@operator("FSDP311")
def folder_of_rank(syntax: FileSyntax) -> Iterator[Plan]:
    """Each rank writes the sharded checkpoint into a folder of its own."""
    name, head = syntax.dist
    for call in syntax.calls("save", of="torch.distributed.checkpoint."):
        folder = argument(call, "checkpoint_id")
        if folder is not None:
            text = f'f"{{{text_of(folder.value)}}}/rank{{{name}.get_rank()}}"'
            if '"' not in text_of(folder.value):
                yield Plan(call, {folder.value: cst.parse_expression(text)}, head)


@operator("FSDP208")
def state_type_of_fsdp1(syntax: FileSyntax) -> Iterator[Plan]:
    """The state of a model of FSDP2 is taken under FSDP1's `state_dict_type`."""
    head = "from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType\n"
    for call, model in _full_states(syntax):
        statement = syntax.statement(call)
        if statement is None:
            continue
        text = f"with FullyShardedDataParallel.state_dict_type({model}, StateDictType.FULL_STATE_DICT):\n    pass\n"
        block = cst.parse_module(text).body[0]
        assert isinstance(block, cst.With)
        taken = cst.parse_expression(f"{model}.state_dict()")
        inner = statement.deep_replace(call, taken).with_changes(leading_lines=[])
        changed = block.with_changes(body=cst.IndentedBlock([inner]))
        yield Plan(call, {statement: [changed]}, head)


@operator("FSDP318")
def load_of_one_rank(syntax: FileSyntax) -> Iterator[Plan]:
    """One rank alone loads a file into a model that is sharded later on."""
    if "sync_module_states" in syntax.text or "broadcast" in syntax.text:
        return
    name, head = syntax.dist
    for call in syntax.calls("load_state_dict"):
        statement = syntax.statement(call)
        if statement is None or "torch.load(" not in text_of(call) or syntax.loop(statement):
            continue
        block = syntax.block(statement)
        after = "".join(text_of(one) for one in block[block.index(statement) + 1 :])
        model = text_of(call.func).removesuffix(".load_state_dict")
        if f"fully_shard({model}" in after or f"FSDP({model}" in after:
            test = cst.parse_statement(f"if {name}.get_rank() == 0:\n    pass\n")
            assert isinstance(test, cst.If)
            inner = statement.with_changes(leading_lines=[])
            guarded = test.with_changes(body=cst.IndentedBlock([inner]))
            yield Plan(statement, {statement: [guarded]}, head)


@operator("FSDP318")
def synchronization_dropped(syntax: FileSyntax) -> Iterator[Plan]:
    """FSDP1 does not send the weights that one rank alone has loaded."""
    if "load_state_dict" not in syntax.text or "rank" not in syntax.text:
        return
    for call in syntax.calls("FullyShardedDataParallel"):
        sync = argument(call, "sync_module_states")
        if sync is not None and text_of(sync.value) == "True":
            yield Plan(call, {call: without(call, "sync_module_states")})
