"""Everything that a run can follow: importing this registers all constructs and models."""

from __future__ import annotations

from fsdplint.interpreter.constructs import (
    assertions,
    branches,
    calls,
    comprehensions,
    contexts,
    expressions,
    generators,
    literals,
    loops,
    matches,
    operators,
    statements,
)
from fsdplint.interpreter.models import (
    accessors,
    adapters,
    attribute_access,
    checkpoint,
    commands,
    containers,
    context_stacks,
    copies,
    data,
    dataclass_objects,
    datasets,
    distributed,
    frameworks,
    fsdp1,
    fsdp2,
    hook_registration,
    instantiation,
    iterators,
    launcher,
    library_modules,
    mixing,
    namespaces,
    nn,
    optim,
    process_groups,
    processes,
    python,
    randomness,
    raw,
    records,
    removals,
    state_dicts,
    state_loading,
    tensors,
    training_frameworks,
    type_tests,
)

CONSTRUCTS = (
    assertions, branches, calls, comprehensions, contexts, expressions, generators, literals, loops,
    matches, operators, statements,
)  # fmt: skip
MODELS = (
    accessors, adapters, attribute_access, checkpoint, commands, containers, context_stacks, copies,
    data, dataclass_objects, datasets, distributed, frameworks, fsdp1, fsdp2, hook_registration,
    instantiation, iterators, launcher, library_modules, mixing, namespaces, nn, optim,
    process_groups, processes, python, randomness, raw, records, removals, state_dicts,
    state_loading, tensors, training_frameworks, type_tests,
)  # fmt: skip
