"""The functions that rewrite a use of an API, by the API's name (`symbols`)."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdplint.migration.context import Migration
from fsdplint.source.source import Source

Rewriter = Callable[[Migration, Source, cst.CSTNode, str], None]
MemberRewriter = Callable[[Migration, Source, cst.Attribute], None]
_REWRITERS: dict[str, Rewriter] = {}
_MEMBER_REWRITERS: dict[str, MemberRewriter] = {}


def rewrites(*names: str) -> Callable[[Rewriter], Rewriter]:
    """Register the rewriter of references to enums, configs and other values by their names.

    It gets the reference and its full name, such as "ShardingStrategy.FULL_SHARD".
    """

    def register(rewriter: Rewriter) -> Rewriter:
        _REWRITERS.update(dict.fromkeys(names, rewriter))
        return rewriter

    return register


def rewrites_member(*names: str) -> Callable[[MemberRewriter], MemberRewriter]:
    """Register the rewriter of methods and attributes of FSDP1 modules by their names."""

    def register(rewriter: MemberRewriter) -> MemberRewriter:
        _MEMBER_REWRITERS.update(dict.fromkeys(names, rewriter))
        return rewriter

    return register


def rewriter_of(name: str) -> Rewriter | None:
    """The rewriter of references to a name or to its owner, or None."""
    return _REWRITERS.get(name.partition(".")[0])


def member_rewriter(name: str) -> MemberRewriter | None:
    """The rewriter of a method or attribute of FSDP1 modules."""
    return _MEMBER_REWRITERS.get(name)
