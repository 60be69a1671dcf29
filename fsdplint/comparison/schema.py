"""The JSON of a comparison: the types that its writer fills. `docs/schemas/` is made from them."""

from __future__ import annotations

from typing import Literal, TypedDict

from fsdplint.report.schema import Line


class Value(TypedDict):
    """What one program does.

    Attributes:
        value: what holds, as text.
        at: the place that says so, or null.
    """

    value: str
    at: Line | None


class Fact(TypedDict):
    """One thing that holds for both programs, for one of them, or not for certain.

    Attributes:
        topic: what it is about, such as "unit" or "optimizer lr".
        subject: the object that it is about, such as the path of a unit; may be empty.
        outcome: whether the programs agree.
        before: what the program before the migration does.
        after: what the program after it does.
        reason: why the fact could not be followed, or null.
        conditions: the configuration in which it holds; empty for any.
    """

    topic: str
    subject: str
    outcome: Literal["agrees", "differs", "not_followed"]
    before: Value
    after: Value
    reason: str | None
    conditions: list[str]


class Validation(TypedDict):
    """The report of `fsdplint validate --output-format json`.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        summary: the result in one sentence.
        agrees: the number of facts that agree.
        differs: the number of facts that differ.
        not_followed: the number of facts that could not be followed.
        errors: why the programs could not be compared; empty if they were.
        facts: the facts.
    """

    schema_version: Literal[1]
    version: str
    summary: str
    agrees: int
    differs: int
    not_followed: int
    errors: list[str]
    facts: list[Fact]


class PlannedUnit(TypedDict):
    """A module that is sharded by itself, or a model with such modules.

    Attributes:
        path: the path of the module, such as "model.layers.*.mlp"; "*" stands for all elements of
            a list.
        class_name: its class; may be empty.
        api: the API that shards it; null for a model that is not sharded itself.
        at: the call that shards it, or null.
        options: the options by their names, in the terms of FSDP2, as text; "?" is unknown.
        parameters: the modules whose own parameters it shards, by their paths in the unit; "." is
            the unit itself. For a model that is not sharded itself, those that stay whole.
        uncertain: those of `parameters` that may have no own parameters.
        has_unknown_parts: whether it may have further parts, whose code cannot be seen.
        ignored: what is ignored: paths of modules, or the expression in the program.
        marks: what else is done with it: "activation checkpointing", "torch.compile".
        collectives: the calls of each collective in a forward and a backward of one module while
            its parameters are trained; null if they are not known.
        selection: in words, which of the modules at this path are sharded; null for all of them.
        bytes: the bytes of its parameters that one rank holds, of all modules that it stands for;
            null without a simulation.
        held: the bytes of its parameters, gradients and optimizer state that one rank holds, of
            all modules that it stands for; null without a simulation.
        units: the units inside of it.
    """

    path: str
    class_name: str
    api: Literal["fsdp1", "fsdp2"] | None
    at: Line | None
    options: dict[str, str]
    parameters: list[str]
    uncertain: list[str]
    has_unknown_parts: bool
    ignored: list[str]
    marks: list[str]
    collectives: dict[str, int] | None
    selection: str | None
    bytes: int | None
    held: dict[str, int] | None
    units: list[PlannedUnit]


class PlannedLayout(TypedDict):
    """What a program shards in some configurations.

    Attributes:
        conditions: what holds in these configurations and not in all others.
        gaps: what is not known.
        models: the models that are sharded.
    """

    conditions: list[str]
    gaps: list[str]
    models: list[PlannedUnit]


class RankBytes(TypedDict):
    """What one rank holds, from a simulation.

    Attributes:
        world_size: the number of ranks.
        bytes: the bytes after the last step, by what they are for.
    """

    world_size: int
    bytes: dict[str, int]


class PlannedProgram(TypedDict):
    """The sharding plan of one program.

    Attributes:
        entry: the file that is run; null for functions that no program calls.
        layouts: what it shards, for each set of configurations.
        held: what one rank holds; null without a simulation.
    """

    entry: str | None
    layouts: list[PlannedLayout]
    held: RankBytes | None


class ShardingPlan(TypedDict):
    """The report of `fsdplint plan --output-format json`.

    Attributes:
        schema_version: the version of this schema.
        version: the version of fsdplint.
        programs: the programs that shard a model.
        problems: what could not be read.
    """

    schema_version: Literal[1]
    version: str
    programs: list[PlannedProgram]
    problems: list[str]
