"""`buffer_dtype`: FSDP1 casts a model's floating point buffers, FSDP2 does not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.no_sync import negation
from fsdplint.interpreter.values import ModuleValue, Unknown, Value
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import BUFFER_DTYPE_UNKNOWN, BUFFERS_EMPTIED_LATER
from fsdplint.migration.constructor import batch_norms
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.library_layers import lacks_buffers
from fsdplint.migration.constructor.precision import PARAMETERS
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.migration.text import is_repeatable
from fsdplint.source.source import NodeSite, Source
from fsdplint.syntax.arguments import arguments, is_constant
from fsdplint.syntax.bindings import bindings_of
from fsdplint.syntax.enclosing import function_around
from fsdplint.trace import ModuleMoved, Wrapped

MAX_DEPTH = 8
STATE_CALLS = re.compile(r"state_dict|save_pretrained|push_to_hub")


@dataclass
class Buffers:
    """Writes the casts of the buffers of one wrapped model into its `keywords`."""

    migration: Migration
    source: Source
    at: cst.Call
    precision: Precision
    may_be_none: Callable[[cst.BaseExpression], bool]
    wrap_policy: cst.BaseExpression | None = None

    def add_casts(self, value: cst.BaseExpression, keywords: Keywords) -> None:
        """Add the casts of the buffers that a policy of mixed precision requires.

        Raises:
            Blocked: their dtype cannot be written beside the constructor call.
        """
        known = self.precision
        always = self.wrap_policy is None or not self.may_be_none(self.wrap_policy)
        norms = keywords.norms and always
        if not known.buffers or not has_buffers(self.migration, self.at, norms):
            return
        found, maybe_none = self._configs(value)
        if all(call not in known.buffers for call in found):
            return
        if self._are_emptied_later():
            raise Blocked(self.source, value, BUFFERS_EMPTIED_LATER())
        texts = {self._text(call) for call in found}
        text = texts.pop() if len(texts) == 1 else None
        if text and not maybe_none:
            keywords.buffers = text
        elif self._have_field("param_dtype", found):
            keywords.buffers_as = "param_dtype"
        elif text and all(call in known.lowering for call in found):
            keywords.buffers_as = "param_dtype"
            keywords.buffers_to = text
        elif self._have_field("reduce_dtype", found):
            keywords.buffers_as = "reduce_dtype"
        elif text and (guard := self._guard(value)):
            keywords.buffers, keywords.buffers_if = text, guard
        elif choice := self._choice(found):
            keywords.buffers_as, keywords.buffers_to = "param_dtype", choice
        else:
            raise Blocked(self.source, value, BUFFER_DTYPE_UNKNOWN())
        if all(map(self._casts_to_float32, found)) or not any(
            STATE_CALLS.search(source.text) for source in self.migration.program.sources.values()
        ):
            return
        self.migration.note(
            "buffers are saved in the low precision that they are cast to",
            self.source,
            value,
            detail="FSDP1 saved the same rounded values in the original type.",
        )

    def _casts_to_float32(self, call: cst.Call) -> bool:
        dtype = arguments(call, PARAMETERS)[0].get("buffer_dtype")
        return dtype is not None and self.migration.symbol(dtype.value) == "torch.float32"

    def _choice(self, found: set[cst.Call]) -> str:
        """The dtype of buffers by the `param_dtype` of the policy that is used; "" if it is not known.

        `{policy}` stands for the policy.
        """
        torch = self.migration.torch(self.source, self.at)
        chosen: dict[str, str] = {}
        for call in sorted(found, key=self._position):
            param = arguments(call, PARAMETERS)[0].get("param_dtype")
            symbol = self.migration.symbol(param.value) if param is not None else ""
            buffer = self._text(call)
            if not re.fullmatch(r"torch\.\w+", symbol) or buffer is None:
                return ""
            param_dtype = torch + symbol.removeprefix("torch")
            if chosen.setdefault(param_dtype, buffer) != buffer:
                return ""
        field = "{policy}.param_dtype"
        other = [(one, dtype) for one, dtype in chosen.items() if one != dtype]
        if len(other) == 1:
            ((one, dtype),) = other
            return f"{dtype} if {field} == {one} else {field}"
        items = ", ".join(f"{one}: {dtype}" for one, dtype in chosen.items())
        return f"{{{{{items}}}}}[{field}]"

    def _position(self, call: cst.Call) -> tuple[str, int]:
        source = next(s for s in self.migration.sources if s.parent(call) is not None)
        return source.path, source.span(call)[0]

    def _guard(self, value: cst.BaseExpression) -> str:
        """The condition under which an argument is a policy, "" if it cannot be written twice."""
        if isinstance(value, cst.Name):
            return f"{value.value} is not None"
        if not isinstance(value, cst.IfExp) or not is_repeatable(value.test):
            return ""
        if is_constant(value.orelse, "None"):
            return self.migration.text(self.source, value.test)
        return negation(self.source, value.test) if is_constant(value.body, "None") else ""

    def _are_emptied_later(self) -> bool:
        """Whether a run gives the wrapped model memory by `to_empty`, which drops such casts."""
        for trace in self.migration.program.traces:
            wrapped: set[str] = set()
            for event in trace:
                if isinstance(event, Wrapped):
                    if isinstance(event.site, NodeSite) and event.site.node is self.at:
                        wrapped |= {event.module, event.inner}
                elif isinstance(event, ModuleMoved) and event.method == "to_empty":
                    if event.module in wrapped:
                        return True
        return False

    def _have_field(self, field: str, found: set[cst.Call]) -> bool:
        """Whether the buffers get the dtype of a field of the new policy in all configs."""
        return all(field in self.precision.equal_fields.get(call, ()) for call in found)

    def _configs(self, value: cst.BaseExpression) -> tuple[set[cst.Call], bool]:
        """The `MixedPrecision(...)` calls that an argument may be, and whether it may be None."""
        found: set[cst.Call] = set()
        maybe_none = False
        rest: list[cst.BaseExpression] = []
        stack = [(value, 0)]
        while stack:
            node, depth = stack.pop()
            items = definitions(self.source, node) if isinstance(node, cst.Name) else None
            if is_constant(node, "None"):
                maybe_none = True
            elif isinstance(node, cst.Call) and node in self.precision.calls:
                found.add(node)
            elif isinstance(node, cst.IfExp) and depth < MAX_DEPTH:
                stack += [(node.body, depth + 1), (node.orelse, depth + 1)]
            elif items and depth < MAX_DEPTH:
                stack += [(item.value, depth + 1) for item in items]
            else:
                rest.append(node)
        for node in rest:
            sites = {
                v.created_at.node for v in self.migration.values(node) if v.created_at is not None
            }
            calls = [call for call in self.precision.calls if call in sites]
            found.update(calls or self.precision.calls)
            maybe_none = maybe_none or self.may_be_none(node)
        return found, maybe_none

    def _text(self, call: cst.Call) -> str | None:
        """The text of a config's `buffer_dtype` beside the constructor call.

        None if the code there cannot name it.
        """
        dtype = self.precision.buffers.get(call)
        if dtype is None:
            return None
        symbol = self.migration.symbol(dtype)
        if re.fullmatch(r"torch\.\w+", symbol):
            return self.migration.torch(self.source, self.at) + symbol.removeprefix("torch")
        if self.source.parent(call) is None:
            return None
        if function_around(self.source, call) is function_around(self.source, self.at):
            return self.migration.text(self.source, dtype)
        if isinstance(dtype, cst.Name):
            bindings = bindings_of(self.source)
            owners = {bindings.owner(bindings.scope_at(x), dtype.value) for x in (dtype, self.at)}
            if len(owners) == 1 and (owner := owners.pop()) and owner.node is self.source.tree:
                return dtype.value
        return None


def has_buffers(migration: Migration, at: cst.Call, norms: bool) -> bool:
    """Whether the model that a constructor call wraps may have floating point buffers to cast.

    norms: whether FSDP1 leaves the buffers of batch norms alone.
    """
    sources = migration.program.sources.values()
    registers = r"register_buffer" if norms else r"register_buffer|BatchNorm"
    if any(re.search(registers, source.text) for source in sources):
        return True
    module = next((a.value for a in at.args if a.keyword is None or _keyword(a) == "module"), None)
    if module is not None and _lacks_buffers(migration.values(module)):
        return False
    if module is not None and any(_holds_unknown(v) for v in migration.values(module)):
        return True
    seen = False
    for trace in migration.program.traces:
        for event in trace.of(Wrapped):
            if isinstance(event.site, NodeSite) and event.site.node is at:
                parts = trace.submodules(event.inner)
                seen = seen or bool(parts)
                if not all(
                    trace.modules[part].children_known
                    or (trace.modules[part].qualified_class or "").startswith("torch.nn.")
                    for part in parts
                ):
                    return True
    return not seen


def may_have_any_buffers(migration: Migration, at: cst.Call) -> bool:
    """Whether the model that a constructor call wraps may have buffers of any type."""
    module = next((a.value for a in at.args if a.keyword is None or _keyword(a) == "module"), None)
    values = [] if module is None else migration.values(module)
    of_library = any(
        isinstance(value, ModuleValue)
        and not (value.library_class or "torch.nn.").startswith("torch.nn.")
        for value in values
    )
    return of_library or has_buffers(migration, at, norms=False)


def _lacks_buffers(values: list[Value]) -> bool:
    """Whether values are models of libraries that have no floating point buffers."""
    return bool(values) and all(
        isinstance(value, ModuleValue)
        and (
            lacks_buffers(value.library_class or "")
            or batch_norms.IMAGE_CLASSIFIER.fullmatch(value.library_class or "") is not None
        )
        for value in values
    )


def _keyword(arg: cst.Arg) -> str:
    return arg.keyword.value if arg.keyword is not None else ""


def _holds_unknown(value: Value, depth: int = 0) -> bool:
    """Whether a module has an attribute of unknown value, which may be a module."""
    if not isinstance(value, ModuleValue) or depth > MAX_DEPTH:
        return False
    for held in value.attributes.values():
        if isinstance(held, Unknown) and (held.origin.endswith("()") or held.refined is not None):
            return True
        if _holds_unknown(held, depth + 1):
            return True
    return False
