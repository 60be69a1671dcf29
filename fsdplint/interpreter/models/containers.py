"""Lists, sets and dicts."""

from __future__ import annotations

import libcst as cst

from fsdplint.interpreter import group_options, possible_lists, rank_elements, rank_means
from fsdplint.interpreter.assignment import assign
from fsdplint.interpreter.choices import choose, is_written_out, read_entry
from fsdplint.interpreter.decided_values import note_decided_element
from fsdplint.interpreter.frames import Call
from fsdplint.interpreter.imports import load_registrations
from fsdplint.interpreter.iteration import (
    concatenate,
    is_list_of_parameters,
    iterate,
    unknown_keys,
)
from fsdplint.interpreter.library_classes import is_module_class
from fsdplint.interpreter.list_lengths import length_of
from fsdplint.interpreter.models.registry import function, method
from fsdplint.interpreter.module_counts import count
from fsdplint.interpreter.module_elements import stands_for_several
from fsdplint.interpreter.module_tree import note_keys
from fsdplint.interpreter.one_rank_dicts import (
    add_entries,
    begin_dict,
    has_entries_on_one_rank,
    note_entries,
)
from fsdplint.interpreter.optimizers import take_parameters
from fsdplint.interpreter.own_choices import taken_here
from fsdplint.interpreter.own_dicts import as_dict, dict_to_read
from fsdplint.interpreter.own_lengths import added_number, note_addition, own_length
from fsdplint.interpreter.parameter_filters import (
    doubt_filter,
    tested_in_loop,
    with_current_filters,
)
from fsdplint.interpreter.rank_local import local_of, of_every_element
from fsdplint.interpreter.removals import forget_items, note_removal
from fsdplint.interpreter.replaced_parameters import note_membership
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings import override_entries
from fsdplint.interpreter.torch_values import (
    Length,
    ModulesOf,
    ParametersOf,
    PossibleLists,
    StateValue,
)
from fsdplint.interpreter.unknown_entries import known_elements
from fsdplint.interpreter.values import (
    Class,
    Const,
    Dict,
    ModuleValue,
    Sequence,
    Symbol,
    Unknown,
    Value,
    is_none,
)
from fsdplint.trace.numbers import of_atom


@function("builtins.len")
def length(run: Run, name: str, call: Call) -> Value:
    value = call.args[0] if call.args else None
    own = own_length(run.settle(value) if value is not None else None)
    if own is not None:
        length = of_atom(run.text(call.node))
        return Unknown(varying=True, own_number=own, term=length)
    if isinstance(value, ModulesOf):
        return count(run, value, run.text(call.node))
    held = value.elements if isinstance(value, ModuleValue) else value and as_dict(value)
    if isinstance(held, Sequence | Dict) and not held.open:
        if not stands_for_several(run, held):
            return Length(len(held.items))
    # `len(name.split("."))` in a loop, or the length of a list that the loop fills
    varies = (isinstance(held, Unknown) and held.varying) or _grows(run, held)
    number = length_of(run, held)
    if varies and number is None:
        number = of_atom(run.text(call.node))  # as `enumerate` counts to it
    result = Unknown(run.text(call.node), varying=varies, term=number)
    rank_means.note_length(run, value, result)
    return result


def _grows(run: Run, held: Value | None) -> bool:
    """Whether a loop that is executed adds elements to a list."""
    loop = run.growing.get(held) if held is not None else None
    return loop is not None and any(one is loop for one in run.loop_guards)


@function("collections.defaultdict")
def make_defaultdict(run: Run, name: str, call: Call) -> Value:
    """A dict that makes the value of a missing key, by the first argument."""
    result = make_dict(run, name, Call(call.node, call.args[1:], call.kwargs, call.open))
    factory = run.settle(call.args[0]) if call.args and not call.open else None
    if isinstance(result, Dict) and factory is not None and not is_none(factory):
        result.factory = factory
    return result


@function("builtins.dict", "collections.OrderedDict")
def make_dict(run: Run, name: str, call: Call) -> Value:
    result = Dict({}, call.open, created_at=run.site(call.node), made_at=run.steps)
    for value in call.args:
        value = dict_to_read(run.settle(value))
        if isinstance(value, StateValue):
            return value
        if isinstance(value, Dict):
            result.take(value)
        elif isinstance(value, ParametersOf):
            result.tensors["*"] = take_parameters(run, value, element=True)
            result.open = True
        elif isinstance(value, Sequence) and all(
            isinstance(i, Sequence) and len(i.items) == 2 for i in value.items
        ):
            for pair in value.items:
                key = pair.items[0] if isinstance(pair, Sequence) else Unknown()
                if isinstance(key, Const) and isinstance(pair, Sequence):
                    result.items[key.value] = pair.items[1]
                elif isinstance(pair, Sequence):
                    result.tensors["*"] = pair.items[1]
                    result.open = True
        else:
            result.open = True
            if isinstance(value, Unknown):
                known = known_elements(value)
                result.items.update({key: one for key, one in known if isinstance(key, str)})
                result.rest_local = (
                    local_of(value) if len(call.args) == 1 and not call.open else None
                )
    result.items.update(call.kwargs)
    note_keys(run, result.items)
    copied = len(call.args) == 1 and has_entries_on_one_rank(as_dict(run.settle(call.args[0])))
    begin_dict(run, result)
    result.empty_elsewhere = result.empty_elsewhere or (copied and not call.kwargs)
    return result


@method("Sequence", "append", "add")
def append(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    if call.args:
        element = with_current_filters(run, call.args[0], call.node)
        if tested_in_loop(run):
            doubt_filter(run, call.args[0])
            if _is_class_of_modules(element):
                element = Unknown(varying=True)  # a search among modules finds it or not
        element = added_number(run, receiver, taken_here(run, element))
        element = rank_elements.added_here(run, receiver, element)
        receiver.items.append(element)
        receiver.length = None
        if run.loop_depth:
            receiver.open = True
            run.growing[receiver] = run.loop_guards[-1] if run.loop_guards else None
        note_addition(run, receiver)
        note_decided_element(run, receiver)
    return Const(None)


def _is_class_of_modules(value: Value) -> bool:
    """Whether a value is a class of modules."""
    if isinstance(value, Symbol):
        return is_module_class(value.name)
    return isinstance(value, Class) and any(map(is_module_class, value.library_bases()))


@method("Sequence", "extend", "update")
def extend(run: Run, receiver: Sequence, name: str, call: Call) -> Value:
    if call.args:
        items, exact = iterate(run, call.args[0])
        receiver.extend(items)
        receiver.open = receiver.open or not exact
        receiver.own_length = receiver.own_length or own_length(call.args[0])
        note_addition(run, receiver)
    return Const(None)


@method("ParametersOf", "append", "add", "extend", "update")
def add_to_parameters(run: Run, receiver: ParametersOf, name: str, call: Call) -> Value:
    """The variable of a list of parameters holds a longer list from then on."""
    func = call.node.func if isinstance(call.node, cst.Call) else None
    if call.args and is_list_of_parameters(receiver) and isinstance(func, cst.Attribute):
        added = call.args[0]
        if name in ("append", "add"):
            added = Sequence([added], "list")
        if isinstance(func.value, cst.Name | cst.Attribute):
            assign(run, func.value, concatenate(run, receiver, added))
    return Const(None)


@method("PossibleLists", "append", "add", "extend", "update")
def add_to_one_of_several(run: Run, receiver: PossibleLists, name: str, call: Call) -> Value:
    possible_lists.add(run, receiver, name, call)
    return Const(None)


@method("Dict", "items", "values", "keys")
def dict_view(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    if name == "keys":
        return Sequence([Const(k) for k in receiver.items], "list", receiver.open)
    if name == "values":
        values = [*receiver.items.values(), *receiver.tensors.values()]
        return Sequence(values, "list", receiver.open)
    pairs: list[Value] = [Sequence([Const(k), v], "tuple") for k, v in receiver.items.items()]
    unknown = zip(unknown_keys(receiver), receiver.tensors.values(), strict=True)
    pairs += [Sequence([key, v], "tuple") for key, v in unknown]
    return Sequence(pairs, "list", receiver.open)


@method("Dict", "get", "pop", "setdefault")
def dict_get(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    key = call.args[0] if call.args else Unknown()
    note_membership(run, call.node, key, receiver)
    value = read_entry(run, receiver, key.value) if isinstance(key, Const) else None
    lacks = receiver.has(key.value) is False if isinstance(key, Const) else not receiver.open
    if isinstance(key, Const) and key.value in receiver.removed and lacks and name == "get":
        return call.kwargs.get("default", Const(None)) if len(call.args) < 2 else call.args[1]
    if isinstance(key, Const) and name == "pop":
        receiver.items.pop(key.value, None)
        receiver.names_of = None
        note_removal(run, receiver, key)
    if value is not None:
        return value
    if name == "setdefault" and not isinstance(key, Const) and len(call.args) > 1:
        made = run.settle(call.args[1])
        if isinstance(made, Sequence | Dict):
            text = run.text(call.node.args[0].value) if isinstance(call.node, cst.Call) else "*"
            return possible_lists.entry_or_new(run, receiver, text, made)
    if isinstance(key, Unknown) and not is_written_out(receiver):
        load_registrations(run)
    if isinstance(key, Unknown) and receiver.items and not receiver.open:
        default = call.arg(1, "default")
        found = choose(run, key, receiver.items, call.node, complete=False, default=default)
        if name == "pop":
            forget_items(receiver)
        return found if found is not None else Unknown(origin=run.text(call.node))
    if len(call.args) > 1 and lacks:
        if name == "setdefault" and isinstance(key, Const):
            note_entries(run, receiver)
            receiver.items[key.value] = call.args[1]
        return call.args[1]
    local = of_every_element(receiver) if isinstance(key, Const) else None
    return Unknown(origin=run.text(call.node), rank_local=local)


@method("Dict", "update")
def dict_update(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    group_options.note_update(run, receiver, call)
    for value in map(as_dict, call.args):
        if isinstance(value, Dict):
            add_entries(run, receiver, value)
            continue
        note_entries(run, receiver)
        if isinstance(value, StateValue):
            receiver.may_have_more()
            receiver.tensors[f"**{value.id}"] = value
        else:
            override_entries(receiver)
    if call.open:
        override_entries(receiver)
    if call.open or call.kwargs:
        note_entries(run, receiver)
    receiver.items.update(call.kwargs)
    return Const(None)


@method("Dict", "copy")
def dict_copy(run: Run, receiver: Dict, name: str, call: Call) -> Value:
    result = Dict(empty_elsewhere=receiver.empty_elsewhere)
    result.take(receiver)
    return result
