"""Values of the interpreter: the objects that the FSDP contract depends on; the rest is Unknown.

A value is mutable if the object of the program is (a list, dict, instance or module). Values are
compared by identity. `created_at` is the node that made a value (the call of `partial(...)`, the
dict display, ...), so that a rewrite finds the definition of a value that it reads.
"""

from fsdplint.interpreter.values.base import RankLocal, Scope, Value
from fsdplint.interpreter.values.code import (
    Bound,
    Function,
    LazyClass,
    LazyImport,
    Method,
    Namespace,
    Partial,
    PartialMethod,
    ProjectModule,
    Super,
)
from fsdplint.interpreter.values.contexts import Context, GeneratorContext, gathers
from fsdplint.interpreter.values.objects import (
    MAX_BITS,
    MAX_ELEMENTS,
    Class,
    Dict,
    Instance,
    ModuleValue,
    OptimizerValue,
    Sequence,
    Symbol,
    Template,
    Unknown,
)
from fsdplint.interpreter.values.plain import (
    Condition,
    Const,
    Lazy,
    LibraryObject,
    constant,
    is_none,
)

__all__ = [
    "MAX_BITS",
    "MAX_ELEMENTS",
    "Bound",
    "Class",
    "Condition",
    "Const",
    "Context",
    "Dict",
    "Function",
    "GeneratorContext",
    "Instance",
    "Lazy",
    "LazyClass",
    "LazyImport",
    "LibraryObject",
    "Method",
    "ModuleValue",
    "Namespace",
    "OptimizerValue",
    "Partial",
    "PartialMethod",
    "ProjectModule",
    "RankLocal",
    "Scope",
    "Sequence",
    "Super",
    "Symbol",
    "Template",
    "Unknown",
    "Value",
    "constant",
    "gathers",
    "is_none",
]
