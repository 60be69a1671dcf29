"""The JSON of a comparison: the types that its writer fills. `docs/schemas/` is made from them."""

from __future__ import annotations

from typing import Literal, TypedDict


class Place(TypedDict):
    """A line of one of the programs.

    Attributes:
        filename: the path of the file.
        row: the line, from 1.
    """

    filename: str
    row: int


class Value(TypedDict):
    """What one program does.

    Attributes:
        value: what holds, as text.
        at: the place that says so, or null.
    """

    value: str
    at: Place | None


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
