"""All arguments of one call of FSDP1's constructor, as keywords of `fully_shard`."""

from __future__ import annotations

import libcst as cst

from fsdplint.migration.blockers import Blocked
from fsdplint.migration.constructor import unused_variables
from fsdplint.migration.constructor.all_ranks import names_all_ranks
from fsdplint.migration.constructor.keywords import Keywords
from fsdplint.migration.constructor.mapping import read_mapping
from fsdplint.migration.constructor.reader import Reader
from fsdplint.migration.context import Migration
from fsdplint.migration.facts import Precision
from fsdplint.source.source import Source


def read_keywords(
    migration: Migration,
    source: Source,
    node: cst.Call,
    named: dict[str, cst.Arg],
    rest: list[cst.Arg],
    precision: Precision,
) -> Keywords:
    """Translate the arguments of a constructor call.

    named: the arguments by the names of their parameters.
    rest: arguments without a name, such as `**kwargs`.

    Raises:
        Blocked: an argument has no rewrite.
    """
    keywords = Keywords(migration, source, node)
    values = {name: arg.value for name, arg in named.items() if name != "module"}
    if rest:
        read_mapping(migration, source, node, rest, values, keywords, precision)
    elif names_all_ranks(migration, source, values):
        unused_variables.delete_variable_of(migration, source, values.pop("process_group"))
    reader = Reader(migration, source, node, keywords, precision, values)
    reader.find_norms()
    blocked: list[Blocked] = []
    for name, value in values.items():
        try:
            reader.read(name, value)
        except Blocked as error:
            blocked.append(error)
    if blocked:
        migration.blockers.extend(blocked[1:])
        raise blocked[0]
    reader.add_default_mesh()
    reader.set_device_of_model(node)
    return keywords
