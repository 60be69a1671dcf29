"""FSDP104: see the class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdplint.diagnostics.finding import Finding, Fix, Safety, Severity
from fsdplint.registry.rule import Rule
from fsdplint.trace import (
    BackwardRun,
    Called,
    Gathered,
    OptimizerBuilt,
    Sharded,
    Site,
    Trace,
    Wrapped,
)
from fsdplint.trace.groups import Groups, Shard, shard_events, sharded_by, shards_unknown_part

if TYPE_CHECKING:
    from fsdplint.interpreter import Program

# Models of Transformers that are a list of equal blocks and little else.
_STACKS = re.compile(r"transformers\.(\w+\.)*\w+(ForCausalLM|LMHeadModel)")
# torch's own classes that are blocks of a model, as a user's class would be.
_LIBRARY_BLOCKS = ("torch.nn.TransformerEncoderLayer", "torch.nn.TransformerDecoderLayer")


class RootOnlySharding(Rule):
    """Only the root of a model of blocks is sharded.

    ## What it does
    Finds `fully_shard(model)`, and FSDP1's constructor without an `auto_wrap_policy` or with one that wraps
    no part of the model, on a model that holds a list of equal blocks with parameters, if no block is sharded
    by the end of the program. The language models of Transformers are such models. Other models of unknown
    structure are not reported, nor programs that shard the blocks in another configuration.

    ## Why is this bad?
    Each sharded module is one group of parameters that is gathered as a whole. If only the root is sharded,
    every forward and backward pass gathers the entire model on every rank before it starts: no memory
    is saved while it computes, and no communication overlaps with computation. With two blocks of
    equal size sharded on their own, two ranks held 50 % of the parameters between blocks instead
    of 100 %; the share falls with the number of blocks.

    ## Fix safety
    Unsafe: a loop that shards each block goes before the root's `fully_shard`. The results are the
    same, but the grouping of communication and the peak memory change. FSDP1 gets no fix here, and
    neither does a program that calls `unshard()` of the root: it does not gather blocks of their own.

    ## Since
    torch 2.4 for `fully_shard`, always for FSDP1.

    ## References
    - torch docs, `torch.distributed.fsdp.fully_shard`: calling it on the root alone gives one group.
    - pytorch/torchtitan#658.
    """

    code = "FSDP104"
    name = "root-only-sharding"
    severity = Severity.WARNING
    fixable = Safety.UNSAFE
    all_configurations = True

    def check(self, trace: Trace) -> Iterator[Finding]:
        groups = Groups(trace)
        if shards_unknown_part(trace):
            return
        sharded = trace.shardings()
        seen: set[Site] = set()
        for event in shard_events(trace):
            module = event.module
            if event.site in seen or len(sharded_by(event)) > 1 or _has_policy(trace, event):
                continue
            if trace.module(module).container or any(
                m in sharded for m in groups.ancestors(module)
            ):
                continue
            if any(part in sharded for part in trace.submodules(module) if part != module):
                continue
            blocks = _repeated_blocks(trace, module)
            names = " and ".join(dict.fromkeys(f"`{b.class_name}`" for b in blocks))
            if blocks and not trace.family_escaped(module, trace.first_backward):
                seen.add(event.site)
                yield self._finding(trace, event, f"none of its {names} blocks", f"each {names}")
            elif (
                not blocks
                and not _names_policy(event)
                and not _is_block(trace, event)
                and _holds_stack(trace, module)
            ):
                seen.add(event.site)
                yield self._finding(trace, event, "none of its blocks", "each decoder layer")

    def _finding(self, trace: Trace, event: Shard, blocks: str, each: str) -> Finding:
        inner = event.inner if isinstance(event, Wrapped) else event.module
        root = trace.module(inner).class_name
        passes = "forward and backward" if _may_train(trace) else "forward"
        return self.finding(
            event,
            f"only the root `{root}` is sharded, and {blocks}: every {passes} gathers the whole model "
            "at once",
            help=f"Shard {each} first, then the root."
            if isinstance(event, Sharded)
            else f"Give an `auto_wrap_policy` that wraps {each}.",
        )

    def fix(self, finding: Finding, program: Program) -> Fix | None:
        import libcst as cst

        from fsdplint.edits.places import module_argument, options_text
        from fsdplint.edits.rewrite import Rewrite
        from fsdplint.source.source import NodeSite
        from fsdplint.syntax.dotted import dotted_name, names_in_scope

        event, site = finding.events[0], finding.site
        if not isinstance(event, Sharded) or not isinstance(site, NodeSite):
            return None
        if any(_gathers_root(trace, site) for trace in program.traces):
            return None  # `unshard()` of the root would no longer gather the blocks
        call = site.node
        root = module_argument(call) if isinstance(call, cst.Call) else None
        if not isinstance(call, cst.Call) or not isinstance(root, cst.Name | cst.Attribute):
            return None
        paths = [found for trace in program.traces for found in _loop_paths(trace, site)]
        if not paths or not paths[0] or any(set(found) != set(paths[0]) for found in paths):
            return None
        source, text = site.source, dotted_name(root)
        used = names_in_scope(source, call)
        rewrite = Rewrite()
        shard = rewrite.need_import(source, "torch.distributed.fsdp", "fully_shard", at=call)
        lines = []
        for path in paths[0]:
            name = _loop_name(path, used)
            lines.append(f"for {name} in {'.'.join((text, *path.split('.'))).rstrip('.')}:")
            lines.append(f"\t{shard}({name}{options_text(source, call)})")
        rewrite.insert_before(source, call, lines)
        return rewrite.fix("Shard each block before the root", Safety.UNSAFE)


@dataclass(frozen=True)
class _RepeatedBlocks:
    """A container of repeated blocks: its path below the root, and their class.

    uniform: whether the container holds nothing but these blocks.
    """

    path: str
    class_name: str
    uniform: bool


def _may_train(trace: Trace) -> bool:
    """Whether a program may train its models."""
    is_known = trace.complete and trace.entry is not None
    return not is_known or any(trace.of(BackwardRun, OptimizerBuilt))


def _gathers_root(trace: Trace, site: Site) -> bool:
    """Whether the program calls `unshard()` of a module that is sharded at a site."""
    roots = {event.module for event in trace.of(Sharded) if event.site == site}
    return any(event.gathered and event.module in roots for event in trace.of(Gathered))


def _has_policy(trace: Trace, event: Shard) -> bool:
    """Whether a policy may wrap blocks: one is given, and it is not known to wrap none."""
    if isinstance(event, Sharded):
        return False
    return "**" in event.options or (_names_policy(event) and not _wraps_nothing(trace, event))


def _wraps_nothing(trace: Trace, event: Wrapped) -> bool:
    """Whether a policy wraps no part. A recorded trace shows it once the constructor has returned."""
    returned = trace.producer == "static" or any(
        called.module == event.module for called in trace.of(Called)
    )
    return event.units == () and returned


def _names_policy(event: Shard) -> bool:
    return isinstance(event, Wrapped) and event.options.get("auto_wrap_policy") is not None


def _is_block(trace: Trace, event: Shard) -> bool:
    """Whether the sharded module is one of several blocks, and no root."""
    return event.in_loop or trace.module(event.module).repeated


def _holds_stack(trace: Trace, root: str) -> bool:
    """Whether a model is or holds a language model of Transformers, whose blocks nothing shards."""
    family = trace.family(root)
    if not trace.complete or trace.any_escaped(family, trace.first_backward):
        return False
    parts = {root, *trace.submodules(trace.unwrap(root))}
    return any(_STACKS.fullmatch(trace.module(one).qualified_class or "") for one in parts)


def _repeated_blocks(trace: Trace, root: str) -> list[_RepeatedBlocks]:
    """The outermost containers under the root that hold two or more blocks of one class."""
    found: list[_RepeatedBlocks] = []
    stack = [(trace.unwrap(root), "")]
    while stack:
        module, path = stack.pop()
        info = trace.modules.get(module)
        if info is None:
            continue
        blocks = _repeated_class(trace, module)
        if blocks is not None:
            names = {trace.module(child).class_name for child in info.children.values()}
            found.append(_RepeatedBlocks(path, blocks, len(names) == 1))
            continue
        for name, child in reversed(info.children.items()):
            stack.append((child, f"{path}.{name}" if path else name))
    return found


def _repeated_class(trace: Trace, container: str) -> str | None:
    """The class of the repeated blocks in a container, if it holds any."""
    info = trace.module(container)
    if not info.container and info.qualified_class != "torch.nn.Sequential":
        return None
    counts: dict[str, int] = {}
    for child in info.children.values():
        block = trace.module(child)
        library = block.qualified_class or ""
        if library.startswith("torch.nn.") and library not in _LIBRARY_BLOCKS:
            continue
        parts = [trace.module(part) for part in trace.submodules(child)]
        if any(part.own_parameters for part in parts):
            more = 2 if block.repeated else 1
            counts[block.class_name] = counts.get(block.class_name, 0) + more
    return next((name for name, count in counts.items() if count >= 2), None)


def _loop_paths(trace: Trace, site: Site) -> list[tuple[str, ...]]:
    """For each module sharded at the site: the paths of its block lists that a loop can run over."""
    result = []
    for event in trace.of(Sharded):
        if event.site == site:
            blocks = _repeated_blocks(trace, event.module)
            usable = tuple(b.path for b in blocks if b.uniform and "*" not in b.path)
            result.append(usable if len(usable) == len(blocks) else ())
    return result


def _loop_name(path: str, used: set[str]) -> str:
    """A name for the loop's variable that the file does not use for anything else yet."""
    last = path.rsplit(".", 1)[-1]
    singular = re.sub(r"(?<=[a-z])s$", "", last)
    for name in (singular, "block", "layer", "module"):
        if name.isidentifier() and name != last and name not in used:
            return name
    return f"{singular}_block"
