"""`sharding_strategy`: each of FSDP1's strategies as keywords of `fully_shard`.

A strategy that is chosen at run time becomes its name: `"FULL_SHARD"` replaces
`ShardingStrategy.FULL_SHARD` everywhere, and the call of `fully_shard` reads the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from fsdplint.edits.quotes import quote_of, string_literal
from fsdplint.fixes.no_sync import negation
from fsdplint.fixes.syntax import substitute
from fsdplint.interpreter.values import Symbol
from fsdplint.migration import symbols
from fsdplint.migration.analysis.class_hierarchy import class_around
from fsdplint.migration.analysis.parameters import function_of_parameter, origins
from fsdplint.migration.analysis.variables import definitions
from fsdplint.migration.blockers import Blocked
from fsdplint.migration.blockers.constructor import CONFIG_UNSEEN
from fsdplint.migration.constructor import enum_lookups, enum_tests
from fsdplint.migration.constructor.helper_place import helper_place
from fsdplint.migration.context import Migration, expression, nodes
from fsdplint.migration.names import STRATEGIES, fsdp1_name
from fsdplint.migration.rewriters import rewrites
from fsdplint.migration.text import atom, call, on_one_line
from fsdplint.source.source import Source
from fsdplint.syntax.arguments import is_constant
from fsdplint.syntax.enclosing import annotation_around
from fsdplint.syntax.layout import descend

ENUM = "ShardingStrategy"
ONE_DIMENSIONAL = ("FULL_SHARD", "SHARD_GRAD_OP")  # strategies whose mesh has one dimension
HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")
# Strategies that keep the parameters gathered after the forward.
NO_RESHARD = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")
KEY = "reshard_after_forward"
Keywords = list[tuple[str, str]]
MESH_STRATEGY_READ = "the program reads the strategy of a mesh"  # in `Migration.emitted_helpers`


@dataclass
class StrategyKeywords:
    """The keywords of `fully_shard` for a strategy.

    FULL_SHARD leaves `reshard_after_forward` out: True makes the root gather once more from torch
    2.8 on, and None is not allowed before.

    Attributes:
        items: keyword and text.
        spread: an expression that gives more of them (`**text`), or "".
        spreads_mesh: whether that expression gives a mesh.
        no_reshard_if: the condition under which parameters stay gathered after the forward, or "".
    """

    items: Keywords = field(default_factory=list)
    spread: str = ""
    spreads_mesh: bool = False
    no_reshard_if: str = ""


@rewrites("ShardingStrategy")
def to_string(migration: Migration, source: Source, node: cst.CSTNode, name: str) -> None:
    """Write a mention of the enum as a string.

    Raises:
        Blocked: the code uses it in a way that a string does not allow.
    """
    annotation = annotation_around(source, node)
    member = name.partition(".")[2]
    if member in STRATEGIES:
        migration.substitute(source, node, string_literal(source, member))
        enum_tests.rewrite_identity(migration, source, node)
    elif member.removesuffix(".name") in STRATEGIES and member.endswith(".name"):
        migration.substitute(source, node, string_literal(source, member.removesuffix(".name")))
    elif not member and annotation is not None:
        migration.substitute(source, node, "str")
        field = source.parent(annotation)
        if isinstance(field, cst.AnnAssign) and class_around(source, field) is not None:
            migration.note(
                "a strategy from the command line or from settings has to be the member's name",
                source,
                node,
                detail="Before, a parser may also have accepted the member's number, or "
                "`ShardingStrategy.FULL_SHARD` with the class.",
            )
    elif not enum_lookups.rewrite(migration, source, node, member, STRATEGIES):
        raise Blocked(source, node, symbols.reason(ENUM))
    migration.account_for(source, node)


def mentioned_strategies(migration: Migration) -> set[str]:
    """The strategies that the files mention; all of them if the files look one up by name.

    What a function says that it returns comes from the strategies that it mentions.
    """
    found: set[str] = set()
    returned = {node for source in migration.sources for node in _return_annotations(source)}
    for node, name in migration.names.items():
        head, _, member = name.partition(".")
        if head == ENUM and node not in returned:
            member = member.partition(".")[0]
            found.update([member] if member in STRATEGIES else STRATEGIES)
    return found


def _return_annotations(source: Source) -> Iterator[cst.CSTNode]:
    """The nodes of the annotations of what functions return."""
    for node in nodes(source):
        if isinstance(node, cst.FunctionDef) and node.returns is not None:
            yield from descend(node.returns)


def choices(migration: Migration, node: cst.BaseExpression) -> set[str]:
    """The strategies that an expression can give: those it names, else those of the files."""
    found = set()
    for part in descend(node):
        head, _, member = migration.fsdp1(part).partition(".")
        if head == ENUM:
            if member not in STRATEGIES:
                return mentioned_strategies(migration)
            found.add(member)
    if found and not isinstance(node, cst.Subscript | cst.IfExp | cst.Attribute):
        return mentioned_strategies(migration)
    return found or mentioned_strategies(migration)


def certain(migration: Migration, node: cst.BaseExpression) -> set[str]:
    """The strategies that a node had in the followed program; empty if some are unknown."""
    found = set()
    for value in migration.values(node):
        name = fsdp1_name(value.name) if isinstance(value, Symbol) else None
        head, _, member = (name or "").partition(".")
        if head != ENUM or member not in STRATEGIES:
            return set()
        found.add(member)
    return found


def literal(migration: Migration, node: cst.CSTNode) -> str | None:
    """The strategy that a node names directly."""
    name = migration.fsdp1(node)
    member = name.removeprefix(ENUM + ".")
    return member if name.startswith(ENUM + ".") and member in STRATEGIES else None


def keywords(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    value: cst.BaseExpression,
    device: str,
    processes: str,
    variable: str = "",
    needs_mesh: bool = False,
) -> StrategyKeywords:
    """The keywords of `fully_shard` for a strategy.

    needs_mesh: whether FSDP2's own mesh of all ranks would be on another device.

    device: the text of the device's type.
    processes: the argument that gives the mesh, or "".
    variable: the variable that holds the strategy, or "".

    Raises:
        Blocked: other code than these files makes the strategy.
    """
    name = literal(migration, value)
    if name is not None:
        migration.account_for(source, value)
        return StrategyKeywords(_literal(migration, source, at, name, device, bool(processes)))
    found = choices(migration, value)
    if not found and not _is_never_given(migration, source, value):
        raise Blocked(source, value, CONFIG_UNSEEN(old=ENUM))
    text = variable or expression(migration, source, value)
    if found <= set(ONE_DIMENSIONAL) or processes:
        if not found - {"FULL_SHARD", "HYBRID_SHARD", "NO_SHARD"}:
            return StrategyKeywords()
        table = "" if variable else _table(migration, source, value)
        if table:
            return StrategyKeywords(spread=table)
        test = _test(migration, source, value)
        if test:
            return StrategyKeywords(no_reshard_if=test)
        grad_op = string_literal(source, "SHARD_GRAD_OP")
        if "_HYBRID_SHARD_ZERO2" in found:
            other = string_literal(source, "_HYBRID_SHARD_ZERO2")
            return StrategyKeywords(no_reshard_if=f"{atom(text)} in ({grad_op}, {other})")
        return StrategyKeywords(no_reshard_if=f"{atom(text)} == {grad_op}")
    found = mentioned_strategies(migration)
    if _may_be_none(migration, source, value):
        found |= set(ONE_DIMENSIONAL)
    given = [text, device] if is_read(device) else [text]
    helper = _helper(migration, source, at, device, found, needs_mesh)
    return StrategyKeywords(spread=f"{helper}({', '.join(given)})", spreads_mesh=True)


def _is_never_given(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether these files give a strategy no other value than None."""
    found = list(origins(migration.sources, source, node))
    nones = [value for _, value in found if is_constant(value, "None")]
    names = [(place, value) for place, value in found if value not in nones]
    return bool(nones) and all(
        isinstance(value, cst.Name)
        and (definitions(place, value) or function_of_parameter(place, value))
        for place, value in names
    )


def _may_be_none(migration: Migration, source: Source, node: cst.BaseExpression) -> bool:
    """Whether a strategy may also be None, which means FULL_SHARD."""
    if not certain(migration, node):
        return True
    return any(
        is_constant(part, "None") or isinstance(part, cst.Call)
        for _, value in origins(migration.sources, source, node)
        for part in descend(value)
    )


def is_read(device: str) -> bool:
    """Whether the text of a device's type reads a variable, which a function has to be given."""
    return device.endswith(".type")


def single_rank_dimension(migration: Migration) -> str:
    """The name of the mesh's dimension over single ranks, for a model that is replicated.

    The name tells the strategies apart if the program reads the strategy of a mesh: hybrid sharding
    on machines with one device each has a mesh of the same shape.
    """
    return "alone" if MESH_STRATEGY_READ in migration.emitted_helpers else "shard"


def conditional(source: Source, test: str) -> str:
    """The dict of keywords that keeps parameters gathered under a condition."""
    return f"{{{string_literal(source, KEY)}: False}} if {test} else {{}}"


def _table(migration: Migration, source: Source, node: cst.BaseExpression) -> str:
    """`{"a": strategy, ...}[key]` with the keywords for each of them, or ""."""
    if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Dict):
        return ""
    texts: dict[cst.CSTNode, str] = {}
    for element in node.value.elements:
        name = literal(migration, element.value)
        if name is None:
            return ""
        no_reshard = f"{{{string_literal(source, KEY)}: False}}"
        texts[element.value] = no_reshard if name in NO_RESHARD else "{}"
    return on_one_line(substitute(source, node, texts))


def _test(migration: Migration, source: Source, node: cst.BaseExpression) -> str:
    """The condition under which `a if test else b` keeps the parameters gathered, or ""."""
    if not isinstance(node, cst.IfExp):
        return ""
    names = literal(migration, node.body), literal(migration, node.orelse)
    if None in names or (names[0] in NO_RESHARD) == (names[1] in NO_RESHARD):
        return ""
    if names[0] in NO_RESHARD:
        return expression(migration, source, node.test)
    return on_one_line(negation(source, node.test))


def _literal(
    migration: Migration, source: Source, at: cst.CSTNode, name: str, device: str, mesh: bool
) -> Keywords:
    found: Keywords = []
    if name in ("NO_SHARD", *HYBRID) and not mesh:
        found.append(("mesh", _mesh(migration, source, at, name, device)))
    if name in NO_RESHARD:
        found.append((KEY, "False"))
    return found


def keys(name: str) -> set[str]:
    """The keywords of `fully_shard` for a strategy, if no other argument gives a mesh."""
    found = {"mesh"} if name in ("NO_SHARD", *HYBRID) else set()
    return found | {KEY} if name in NO_RESHARD else found


def _mesh(migration: Migration, source: Source, at: cst.CSTNode, name: str, device: str) -> str:
    """The two-dimensional mesh that FSDP1 would have built (NO_SHARD: shards of one rank)."""
    quote = quote_of(source)
    world = migration.dist(source, at, "get_world_size") + "()"
    init = migration.need(source, "torch.distributed.device_mesh", "init_device_mesh", at)
    last = single_rank_dimension(migration) if name == "NO_SHARD" else "shard"
    names = f"mesh_dim_names=({quote}replicate{quote}, {quote}{last}{quote})"
    if name == "NO_SHARD":
        shape = f"({world}, 1)"
    else:
        per_node = f"{migration.torch(source, at)}.cuda.device_count()"
        shape = f"({world} // {per_node}, {per_node})"
    return call(source, at, init, [device, shape, names], depth=1)


def _helper(
    migration: Migration,
    source: Source,
    at: cst.CSTNode,
    device: str,
    choices: set[str],
    needs_mesh: bool,
) -> str:
    """Write a function that gives the arguments of `fully_shard` for a strategy's name."""
    parameters = "strategy, device_type" if is_read(device) else "strategy"
    default = [one for one in ONE_DIMENSIONAL if one in choices]
    variant = f"{parameters} {needs_mesh} {'' if is_read(device) else device} {default}"
    name, is_new = migration.helper_name(source, "strategy", "sharding_arguments", variant)
    if not is_new:
        return name
    if is_read(device):
        device = "device_type"
    quote = quote_of(source)

    def q(text: str) -> str:
        return quote + text + quote

    top = helper_place(migration, source, at)
    world = migration.dist(source, top, "get_world_size") + "()"
    init = migration.need(source, "torch.distributed.device_mesh", "init_device_mesh", top)
    hybrid = [x for x in HYBRID if x in choices]
    lines = [
        f"def {name}({parameters}):",
        '\t"""The arguments of fully_shard for the name of one of FSDP1\'s sharding strategies."""',
    ]
    special: list[tuple[str, list[str]]] = []
    if "NO_SHARD" in choices:
        special.append((f"strategy == {q('NO_SHARD')}", [f"shape = ({world}, 1)"]))
    if hybrid:
        several = f"strategy in ({', '.join(map(q, hybrid))})"
        test = f"strategy == {q(hybrid[0])}" if len(hybrid) == 1 else several
        per_node = f"per_node = {migration.torch(source, top)}.cuda.device_count()"
        special.append((test, [per_node, f"shape = ({world} // per_node, per_node)"]))
    dims = f"({q('replicate')}, {q('shard')})"
    if "NO_SHARD" in choices:
        own = f"({q('replicate')}, {q(single_rank_dimension(migration))})"
        if hybrid and own != dims:
            for (_, body), text in zip(special, (own, dims), strict=True):
                body.append(f"names = {text}")
            dims = "names"
        elif not hybrid:
            dims = own
    rest = _default(source, choices, f"{init}({device}, ({world},))" if needs_mesh else "")
    if len(special) == 1:
        test, body = special[0]
        opposite = test.replace(" == ", " != ").replace(" in ", " not in ")
        if rest:
            lines += [f"\tif {opposite}:", *(f"\t\t{line}" for line in rest)]
        lines += [f"\t{line}" for line in body]
    else:
        (first, body), (second, other) = special
        lines += [f"\tif {first}:", *(f"\t\t{line}" for line in body)]
        lines.append(f"\telif {second}:" if rest else "\telse:")
        lines += [f"\t\t{line}" for line in other]
        if rest:
            lines += ["\telse:", *(f"\t\t{line}" for line in rest)]
    if " " in device:
        lines.append(f"\tdevice_type = {device}")
        device = "device_type"
    arguments = [device, "shape", f"mesh_dim_names={dims}"]
    lines.append("\t" + call(source, "", f"mesh = {init}", arguments, depth=1))
    result = f"{{{q('mesh')}: mesh}}"
    if "_HYBRID_SHARD_ZERO2" in hybrid:
        lines.append(f"\targuments = {result}")
        lines.append(f"\tif strategy == {q('_HYBRID_SHARD_ZERO2')}:")
        lines.append(f"\t\targuments[{q(KEY)}] = False")
        result = "arguments"
    lines.append(f"\treturn {result}")
    migration.rewrite.insert_function(source, top, lines)
    return name


def _default(source: Source, choices: set[str], mesh: str) -> list[str]:
    """The lines for the strategies with FSDP2's own mesh; none if the program has no such strategy.

    mesh: the text of this mesh, "" if it need not be written.
    """
    possible = [one for one in ONE_DIMENSIONAL if one in choices]
    if not possible and len(choices) > 1:
        return []
    gathered = f"{string_literal(source, KEY)}: False"
    test = f"strategy == {string_literal(source, 'SHARD_GRAD_OP')}"
    if mesh:
        item = f"{string_literal(source, 'mesh')}: mesh"
        both, plain = f"return {{{item}, {gathered}}}", f"return {{{item}}}"
        lines = [f"mesh = {mesh}"]
        if len(possible) == 1:
            return [*lines, plain if possible == ["FULL_SHARD"] else both]
        return [*lines, f"if {test}:", f"\t{both}", plain]
    if len(possible) == 1:
        return ["return {}" if possible == ["FULL_SHARD"] else f"return {{{gathered}}}"]
    return ["return " + conditional(source, test)]
