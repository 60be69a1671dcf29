"""The items of a dict or tuple that a call of FSDP1 spreads, each read by its key or position.

`FSDP(model, **self.options())` becomes `options = self.options()` and
`FSDP(model, mixed_precision=options.get("mixed_precision"))`, and `FSDP.state_dict_type(model, *self.full)`
becomes `FSDP.state_dict_type(model, self.full[0], self.full[1])`. The program may make the dict or tuple in
any way, as long as the runs show its keys or its length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.quotes import string_literal
from fsdplint.interpreter.values import Sequence, Value
from fsdplint.migration.analysis.variables import bound_names, home_of
from fsdplint.migration.constructor.precision import PARAMETERS as OF_PRECISION
from fsdplint.migration.context import nodes
from fsdplint.migration.direct_form.building import is_computed, only_builds
from fsdplint.migration.direct_form.defaults import default
from fsdplint.migration.direct_form.dtype_dicts import holds_dtypes
from fsdplint.migration.direct_form.inlining import Inlining
from fsdplint.migration.direct_form.meaning import constant_key
from fsdplint.migration.direct_form.spread_keys import SpreadKeys, spread_keys
from fsdplint.migration.names import FSDP, PARAMETERS
from fsdplint.migration.state_dicts.kinds import TYPE_PARAMETERS
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import ancestors, function_around
from fsdplint.syntax.layout import descend, statement_of

OF_CALL = {
    FSDP: PARAMETERS,
    "enable_wrap": PARAMETERS[1:],
    "MixedPrecision": OF_PRECISION,
    f"{FSDP}.state_dict_type": TYPE_PARAMETERS,
    f"{FSDP}.set_state_dict_type": TYPE_PARAMETERS,
}
CHANGES_ORDER = cst.Lambda | cst.IfExp | cst.BooleanOperation | cst.Comparison | cst.BaseComp
DTYPES = ("param_dtype", "reduce_dtype", "buffer_dtype")
NAMES = ("options", "fsdp_options", "fsdp_arguments")


@dataclass
class ItemReads:
    """Reads the items of the dicts that the calls of one file spread."""

    inlining: Inlining
    _taken: dict[cst.CSTNode, set[str]] = field(default_factory=dict)

    def write(self) -> None:
        migration = self.inlining.migration
        for node in nodes(self.inlining.source):
            parameters = OF_CALL.get(migration.called_name(node))
            if parameters is None or not isinstance(node, cst.Call):
                continue
            for arg in node.args:
                keys = self._keys(arg, parameters) if arg.star == "**" else None
                if keys is not None:
                    self._write_call(node, arg, keys)
                elif arg.star == "*":
                    self._write_elements(node, arg)

    def _keys(self, arg: cst.Arg, parameters: tuple[str, ...]) -> SpreadKeys | None:
        migration = self.inlining.migration
        found = spread_keys(migration, arg, parameters)
        if parameters is TYPE_PARAMETERS:  # their defaults have no text here
            return found if found is not None and found.always and not found.sometimes else None
        if found is None and parameters is OF_PRECISION:
            if holds_dtypes(migration, self.inlining.source, arg.value):
                return SpreadKeys([], list(DTYPES))
        return found

    def _write_call(self, call: cst.Call, arg: cst.Arg, keys: SpreadKeys) -> None:
        named = {one.keyword.value for one in call.args if one.keyword is not None}
        found = {*keys.always, *keys.sometimes}
        if named & found or (not found and self._is_parameter(arg.value)):
            return
        text = self._text(call, arg)
        if text is None:
            return
        source = self.inlining.source
        given = []
        for key in (*keys.always, *keys.sometimes):
            literal = string_literal(source, key)
            given.append(f"{key}={text}[{literal}]")
            if key in keys.sometimes:
                otherwise = default(self.inlining, key, call)
                rest = "" if otherwise == "None" else f", {otherwise}"
                given[-1] = f"{key}={text}.get({literal}{rest})"
        if given:
            self.inlining.put(arg, ", ".join(given))
            return
        others = [self.inlining.text(one) for one in call.args if one is not arg]
        self.inlining.put_call(call, self.inlining.text(call.func), others)

    def _write_elements(self, call: cst.Call, arg: cst.Arg) -> None:
        """Read the elements of a tuple or list one by one, if it always has the same number of them."""
        values = self.inlining.migration.values(arg.value)
        lengths = {_length(value) for value in values}
        length = lengths.pop() if len(lengths) == 1 else None
        text = self._text(call, arg) if length else None
        if length and text is not None:
            self.inlining.put(arg, ", ".join(f"{text}[{index}]" for index in range(length)))

    def _is_parameter(self, node: cst.BaseExpression) -> bool:
        """Whether a node is a parameter, for which callers elsewhere may give anything."""
        source = self.inlining.source
        home = home_of(source, node) if isinstance(node, cst.Name) else None
        return isinstance(home, cst.FunctionDef) and any(
            isinstance(part, cst.Param) and is_constant(part.name, source.code(node))
            for part in descend(home.params)
        )

    def _text(self, call: cst.Call, arg: cst.Arg) -> str | None:
        """The text that reads the dict; a variable gets what may not be evaluated several times.

        None if the variable may not be assigned before the statement.
        """
        if self._is_plain(arg.value):
            return self.inlining.text(arg.value)
        statement = self._place(call, arg)
        if statement is None:
            return None
        name = self._variable(call)
        self.inlining.put_before(statement, f"{name} = {self.inlining.text(arg.value)}")
        return name

    def _is_plain(self, node: cst.BaseExpression) -> bool:
        """Whether a node is a variable, an attribute of one, or an item under a constant key."""
        if isinstance(node, cst.Attribute):
            return self._is_plain(node.value) and not is_computed(self.inlining.migration, node)
        if isinstance(node, cst.Subscript):
            return constant_key(node) is not None and self._is_plain(node.value)
        return isinstance(node, cst.Name)

    def _place(self, call: cst.Call, arg: cst.Arg) -> cst.CSTNode | None:
        """The statement before which the dict may be made."""
        migration, source = self.inlining.migration, self.inlining.source
        statement = statement_of(source, call)
        if not isinstance(statement, cst.BaseSmallStatement):
            return None
        earlier: list[cst.BaseExpression] = []
        inner: cst.CSTNode = arg
        for outer in ancestors(source, arg):
            if outer is statement:
                break
            if isinstance(outer, CHANGES_ORDER):
                return None
            if isinstance(outer, cst.Call) and isinstance(inner, cst.Arg):
                earlier += [one.value for one in outer.args[: outer.args.index(inner)]]
            inner = outer
        if only_builds(migration, source, arg.value):
            return statement
        is_free = all(only_builds(migration, source, one) for one in earlier)
        return statement if is_free else None

    def _variable(self, call: cst.Call) -> str:
        """A name that is new in the function of a call."""
        source = self.inlining.source
        function = function_around(source, call) or source.tree
        taken = self._taken.setdefault(function, set(bound_names(source, call)))
        names = [*NAMES, *(f"fsdp_options_{number}" for number in range(2, len(taken) + 3))]
        name = next(one for one in names if one not in taken)
        taken.add(name)
        return name


def _length(value: Value) -> int | None:
    """The number of elements of a tuple or list; None if it is not known."""
    if not isinstance(value, Sequence) or value.kind not in ("tuple", "list"):
        return None
    return None if value.open or value.own_length is not None else len(value.items)
