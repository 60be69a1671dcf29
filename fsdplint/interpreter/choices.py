"""Values that a name chooses: `getattr(module, name)` and `registry[name]` with an unknown name.

The name is a setting, so each candidate is a configuration of the program, and the search tries
each of them. Of more than `MAX_CANDIDATES`, it tries those whose code names the contract's API
first, and in one more run none of them is chosen. A value that no contract depends on is not
chosen, but stays unknown. Members of `ShardingStrategy` are chosen, too, and texts that name
modules of the project. The classes of `torch.optim` need no configurations: each of them builds an
optimizer of the parameters that it gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from fsdplint.interpreter.contract_code import leads_to_contract, migration_depends_on
from fsdplint.interpreter.imports import import_module, load_registrations
from fsdplint.interpreter.named_modules import leads_to_fsdp, names_module
from fsdplint.interpreter.run import Run
from fsdplint.interpreter.settings_files import default_of
from fsdplint.interpreter.similar_choices import by_shape
from fsdplint.interpreter.values import (
    Bound,
    Class,
    Condition,
    Dict,
    Function,
    Instance,
    ModuleValue,
    OptimizerValue,
    Partial,
    Sequence,
    Symbol,
    Template,
    Unknown,
    Value,
)
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import Guard, GuardKind

MAX_CANDIDATES = 12  # each is at least one configuration
MAX_MODULES = 3  # each may be a whole program
MAX_NAMES = 3  # that choose what is the same but for numbers, in a message
ANY = "*"  # the name of a class of one of the packages that an unknown name chooses
_OPTIM = "torch.optim."
_STRATEGY = "torch.distributed.fsdp.ShardingStrategy."

_CHOSEN = Bound | Class | Function | Instance | ModuleValue | OptimizerValue | Partial


def choose(
    run: Run,
    name: Value,
    candidates: Mapping[Any, Value],
    node: cst.CSTNode,
    *,
    complete: bool = True,
    default: Value | None = None,
) -> Value | None:
    """The candidate that a name chooses in this configuration; None if that is not known.

    Args:
        run: the run.
        name: the value of the name.
        candidates: the values that it may choose, by name.
        node: the expression that chooses.
        complete: whether it chooses one of the candidates in any case.
        default: the value if it chooses none of them; None if that is not known.
    """
    if not isinstance(name, Unknown):
        return None
    if name.template is not None:
        holes = {name.template.hole_in(key): value for key, value in candidates.items()}
        candidates = {key: value for key, value in holes.items() if key is not None}
        name = name.template.hole
    known = {key: run.settle(value) for key, value in candidates.items()}
    every = [*known.values(), *([run.settle(default)] if default is not None else [])]
    if known and all(map(_is_optimizer_class, every)):
        return every[0] if complete and len(every) == 1 else Symbol(_OPTIM + ANY)
    if not known or not all(is_choice(one) or names_module(run, one) for one in known.values()):
        return None
    if complete and len(known) == 1:
        return every[0]
    if not _is_fixed(name):
        return None
    if not any(leads_to_contract(run, one) or leads_to_fsdp(run, one) for one in every):
        return None
    groups = {names[0]: tuple(names) for names in by_shape(run, known)}
    known = {first: known[first] for first in groups}
    if len(known) > MAX_CANDIDATES:
        known, complete = _most_concerned(run, known), False
    if complete and len(known) == 1:
        return next(iter(known.values()))
    choice = _Choice(run, name, node, groups, known)
    if all(map(_is_strategy, every)):
        return choice.among_strategies(known, None if complete else default, complete)
    return choice.among(known, None if complete else default, complete)


def module_like(
    run: Run, template: Template, package: str | None, node: cst.CSTNode
) -> Value | None:
    """The module whose name has an unknown part; None if the project has none with such a name.

    Args:
        run: the run.
        template: the name of the module.
        package: the package that a relative name starts from.
        node: the call that imports the module.
    """
    names = run.project.modules_like(template.before, template.after, package, run.source.path)
    if template.hole.varying:
        for named in names.values():  # a loop imports each of them
            import_module(run, named.name)
    if not names or not _is_fixed(template.hole):
        return None
    texts = sorted(names, key=lambda text: not names[text].mentions_fsdp)[:MAX_CANDIDATES]
    choice = _Choice(run, template.hole, node)
    for text in texts:
        if choice.holds(text, relevant=names[text].mentions_fsdp):
            return import_module(run, names[text].name)
    return None


def module_with(run: Run, name: Unknown, member: str, node: cst.CSTNode) -> Value | None:
    """The module that an unknown name chooses among those that define a member; None if the
    project has none.

    A program that takes its settings from a Python file which the command line names has many such
    files. A few of them stand for all: one of them has to define the member, or the program fails.
    """
    names = run.project.modules_with(member, run.source.path) if _is_fixed(name) else {}
    texts = sorted(names, key=lambda text: not names[text].mentions_fsdp)[:MAX_MODULES]
    choice = _Choice(run, name, node)
    for text in texts[:-1]:
        if choice.holds(text, relevant=names[text].mentions_fsdp):
            return import_module(run, text)
    return import_module(run, texts[-1]) if texts else None


def _is_fixed(name: Unknown) -> bool:
    """Whether an unknown name is the same in the whole run, and on all ranks."""
    return bool(name.origin) and not (name.varying or name.by_rank or name.by_process)


def _most_concerned(run: Run, candidates: Mapping[Any, Value]) -> dict[Any, Value]:
    """As many of the candidates as are tried."""
    ordered = _by_concern(run, candidates)[:MAX_CANDIDATES]
    return {name: candidates[name] for name in ordered}


def _by_concern(run: Run, candidates: Mapping[Any, Value]) -> list[Any]:
    """The names of candidates; those whose code names the contract's API come first."""
    words = run.project.words

    def is_concerned(name: Any) -> bool:
        value = candidates[name]
        return leads_to_fsdp(run, value) or any(map(words.stand_in, _code_of(run, value)))

    return sorted(candidates, key=lambda name: not is_concerned(name))


@dataclass
class _Choice:
    """A choice among values, each of which is a configuration of the program.

    Attributes:
        run: the run.
        name: the value that chooses.
        node: the expression that chooses.
        groups: the names that choose what differs from a candidate in numbers only, its own
            included; by the name of the candidate.
        candidates: the values that the name may choose; empty if they are modules of the project.
    """

    run: Run
    name: Unknown
    node: cst.CSTNode
    groups: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)
    candidates: Mapping[Any, Value] = field(default_factory=dict)

    def among(
        self, candidates: Mapping[Any, Value], default: Value | None, complete: bool
    ) -> Value | None:
        """The chosen value. All candidates but the last of a complete choice have a condition."""
        ordered = self._excluded_first(_by_concern(self.run, candidates))
        tested = ordered[:-1] if complete else ordered
        for key in tested:
            if self.holds(key):
                return self._choose(candidates[key], key, self._key(key))
        if complete:
            return self._choose(candidates[ordered[-1]], ordered[-1], self._key(tested[0]))
        return default

    def among_strategies(
        self, candidates: Mapping[Any, Value], default: Value | None, complete: bool
    ) -> Value | None:
        """The chosen member of `ShardingStrategy`.

        Its condition tells its group from the others: what depends on the strategy depends on
        whether it shards, over all ranks or over some of them.
        """
        ordered = self._excluded_first(list(candidates))
        tested = ordered[:-1] if complete else ordered
        name = next((one for one in tested if self.holds(one)), ordered[-1] if complete else None)
        value = default if name is None else candidates[name]
        if value is None:
            return None
        guard = self._group_guard(candidates, default, name)
        if guard is not None:
            value = replace(value)  # the program may use the member without a choice, too
            key = self._key(name if name in tested else tested[0])
            self.run.chosen[id(value)] = value, (guard, key)
        return value

    def _group_guard(
        self, candidates: Mapping[Any, Value], default: Value | None, name: object
    ) -> Guard | None:
        """The condition under which the group of a member is chosen; None if there is one group.

        name: the name of the member; None for the default.
        """
        groups: dict[str, list[object]] = {}
        for one, value in candidates.items():
            groups.setdefault(_group(value), []).append(one)
        if default is not None:
            groups.setdefault(_group(default), []).append(None)
        if len(groups) == 1:
            return None
        single = [names[0] for names in groups.values() if len(names) == 1 and None not in names]
        if len(groups) == 2 and single:
            return self._guard(single[0], name == single[0])
        return None if name is None else self._guard(name, True)

    def _guard(self, name: object, holds: bool) -> Guard:
        text = f"{self._name_in_text()} {self._is_one_of(name, MAX_NAMES)}"
        return Guard(GuardKind.CONFIG, text, holds, self.run.site(self.node))

    def _key(self, name: object) -> str:
        return f"{self.name.origin} {self._is_one_of(name)}"

    def _is_one_of(self, name: object, most: int | None = None) -> str:
        """The test whether a name chooses a candidate, which lists at most so many names."""
        names = self.groups.get(name, (name,))
        if len(names) == 1:
            return f"== {name!r}"
        shown = ", ".join(map(repr, names[:most]))
        return f"in ({shown}{', ...' if most is not None and len(names) > most else ''})"

    def holds(self, name: object, *, relevant: bool = True) -> bool:
        """Whether the name is this one in this configuration.

        relevant: whether the other outcome is worth a configuration of its own.
        """
        test, decisions = self._test(name), self.run.decisions
        # Both bases choose the default. The attribute is that of a test around the choice.
        leaving, decisions.leaving = decisions.leaving, test.of_default
        holds = decisions.decide(test, place=(self.node, test.key), under=self.run.keys_around())
        decisions.leaving = leaving
        if relevant:
            decisions.relevant.add(test.key)
        return holds

    def _test(self, name: object) -> Condition:
        key, names = self._key(name), self.groups.get(name, (name,))
        value = self.candidates.get(name)
        matters = (
            value is None or migration_depends_on(self.run, value) or leads_to_fsdp(self.run, value)
        )
        relation, operand = ("in", names) if len(names) > 1 else ("==", name)
        text = f"{self._name_in_text()} {self._is_one_of(name)}"
        result = Condition(key, text, False, self.name.origin, relation, operand, chooses=matters)
        result.of_default = len(names) == 1 and default_of(self.name) == name
        return result

    def _excluded_first(self, names: list[Any]) -> list[Any]:
        """The names; those that earlier decisions exclude come first, so that the last one of a
        complete choice, which is not tested, is possible."""
        infer = self.run.decisions.infer
        return sorted(names, key=lambda name: infer(self._test(name)) is not False)

    def _choose(self, value: Value, name: object, key: str) -> Value:
        """The value; its calls stand under the condition that the name is this one."""
        self.run.chosen[id(value)] = value, (self._guard(name, True), key)
        return value

    def _name_in_text(self) -> str:
        """The name as the program writes it where it chooses."""
        parts: list[cst.CSTNode] = []
        if isinstance(self.node, cst.Subscript):
            parts = [one.slice.value for one in self.node.slice if isinstance(one.slice, cst.Index)]
        elif isinstance(self.node, cst.Call):
            parts = [arg.value for arg in self.node.args]
        for part in parts:
            if self.run.evaluations.get(part) is self.name:
                return self.run.text(part)
        return self.name.origin


def is_choice(value: Value) -> bool:
    """Whether a value is worth a configuration: code, a model, an optimizer or a strategy."""
    if isinstance(value, Sequence):  # a class and its arguments, or functions to call in turn
        return not value.open and any(map(is_choice, value.items))
    if isinstance(value, Dict):  # the same by name
        return not value.open and any(map(is_choice, value.items.values()))
    return isinstance(value, _CHOSEN) or _is_optimizer_class(value) or _is_strategy(value)


def _is_strategy(value: Value) -> bool:
    """Whether a value is a member of FSDP1's `ShardingStrategy`."""
    return isinstance(value, Symbol) and value.name.startswith(_STRATEGY)


def _group(value: Value) -> str:
    """What the rules tell apart in the strategies: "all", "some" (of the ranks) or "none"."""
    name = value.name if isinstance(value, Symbol) else ""
    return "none" if name.endswith("NO_SHARD") else "some" if "HYBRID" in name else "all"


def guards_of(run: Run, value: Value | None) -> list[tuple[Guard, str]]:
    """The condition under which a value was chosen, if it was."""
    return [run.chosen[id(value)][1]] if id(value) in run.chosen else []


def _is_optimizer_class(value: Value) -> bool:
    if not isinstance(value, Symbol) or not value.name.startswith(_OPTIM):
        return False
    last = value.name.rpartition(".")[2]
    return "." not in value.name.removeprefix(_OPTIM) and (last[:1].isupper() or last == ANY)


def _code_of(run: Run, value: Value) -> list[cst.CSTNode]:
    """The code that a candidate has of its own."""
    if isinstance(value, Partial):
        value = run.settle(value.function)
    if isinstance(value, Bound):
        value = value.function
    if isinstance(value, Instance):
        value = value.cls
    if isinstance(value, Sequence | Dict):
        parts = value.items if isinstance(value, Sequence) else value.items.values()
        return [node for part in parts for node in _code_of(run, run.settle(part))]
    return [value.node] if isinstance(value, Function | Class) else []


def entry_of(run: Run, registry: Dict, name: Value, node: cst.CSTNode) -> Value | None:
    """The entry of a dict that an unknown name chooses; None if that is not known.

    A dict that a display wrote and nothing filled has no other entries, and neither has one that a
    function makes for itself.
    """
    complete = is_written_out(registry)
    if not complete:
        load_registrations(run)
    if registry.open:
        return None
    chosen = choose(run, name, registry.items, node, complete=complete)
    if chosen is None and len(registry.items) == 1 and _is_local(registry):
        return next(iter(registry.items.values()))
    return chosen


def _is_local(value: Dict) -> bool:
    """Whether a function made a dict."""
    made = value.created_at
    return made is not None and isinstance(function_around(made.source, made.node), cst.FunctionDef)


def read_entry(run: Run, registry: Dict, key: object) -> Value | None:
    """The entry of a dict under a known key, which another file may add; None without one."""
    if key not in registry.items and _may_other_files_fill(run, registry):
        load_registrations(run)
    return registry.items.get(key)


def certainly_lacks(run: Run, registry: Dict, key: object) -> bool:
    """Whether no file that the program imports adds an entry under a known key to a dict."""
    executes_file = any(end == float("inf") for _, end in run.file_steps)
    if executes_file or registry.open:
        return registry.has(key) is False
    return read_entry(run, registry, key) is None and not registry.open


def is_empty_registry(run: Run, registry: Dict) -> bool:
    """Whether a dict that the files of a program fill has no entry at this point."""
    if registry.items or registry.tensors or run.loop_depth:
        return False
    if not _may_other_files_fill(run, registry):
        return False
    load_registrations(run)
    return not (registry.open or registry.items or registry.tensors)


def _may_other_files_fill(run: Run, registry: Dict) -> bool:
    """Whether a dict was made by a file that was imported, and is not written out there."""
    made = registry.made_at
    by_file = any(begin < made <= end for begin, end in run.file_steps)
    return by_file and not is_written_out(registry)


def is_written_out(value: Dict) -> bool:
    """Whether an expression shows all entries of a dict, so that no other file adds one."""
    made = value.created_at.node if value.created_at is not None else None
    if not value.items:
        return False
    if isinstance(made, cst.Dict):
        shown = [one for one in made.elements if isinstance(one, cst.DictElement)]
        return len(shown) == len(made.elements) == len(value.items)
    if isinstance(made, cst.Call):
        named = [arg for arg in made.args if arg.keyword is not None]
        return len(named) == len(made.args) == len(value.items)
    return False
