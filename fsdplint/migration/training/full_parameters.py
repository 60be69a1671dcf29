"""`FSDP.summon_full_params` as a context manager that the migrated file gets.

It gives the modules of a sharded model whole parameters in full precision, as FSDP1 does, and writes
them back to the shards. It fits bodies that no other form fits: those that read gradients, take a
state, write parameters in code out of sight, or compute in full precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from fsdplint.fixes.syntax import library_name
from fsdplint.interpreter.torch_values import ParametersOf
from fsdplint.interpreter.values import ModuleValue, OptimizerValue
from fsdplint.migration.analysis.variables import top_level
from fsdplint.migration.context import Migration
from fsdplint.migration.state_dicts.state_functions import write_once
from fsdplint.migration.training.summon_body import Body
from fsdplint.source.source import Source
from fsdplint.syntax.layout import descend

NAME = "gathered_parameters"
TITLE = "Gather whole parameters in full precision"
DEFAULTS = {
    "recurse": True,
    "writeback": True,
    "rank0_only": False,
    "offload_to_cpu": False,
    "with_grads": False,
}
# Methods of modules and of models of libraries that see the whole parameters.
STATES = {"state_dict", "load_state_dict", "save_pretrained"}


@dataclass(frozen=True)
class Options:
    """The options of all calls in a file that use the context manager.

    Attributes:
        given: the texts of each call's arguments, by name; an option that is left out is the default.
    """

    given: tuple[dict[str, str], ...]

    def texts(self, name: str) -> set[str]:
        return {given.get(name, str(DEFAULTS[name])) for given in self.given}

    def varies(self, name: str) -> bool:
        """Whether the context manager needs an argument for an option."""
        return self.texts(name) not in ({"True"}, {"False"})

    def may_be_on(self, name: str) -> bool:
        """Whether an option may be on."""
        return self.texts(name) != {"False"}

    def arguments(self, given: dict[str, str]) -> list[str]:
        """The arguments of one call besides the model."""
        return [f"{name}={given[name]}" for name in DEFAULTS if name in given and self.varies(name)]


def fits(migration: Migration, body: Body) -> bool:
    """Whether a body does the same with whole parameters that modules get for the time of it.

    It must use the parameters that the modules have in the block, not others that it got before, and
    no other API of FSDP1. A call of a module that is sharded itself would gather it once more.
    """
    bound = _bound(body.body)
    for node in descend(body.body):
        if migration.any_name(node):
            return False
        if isinstance(node, cst.Call) and _name(node) in ("deepcopy", "save_model"):
            return False
        if isinstance(node, cst.Name | cst.Attribute) and _is_earlier(migration, node, bound):
            return False
    if body.call_with_module() is not None:
        return False
    return all(_name(call) in STATES for call in body.states())


def _bound(body: cst.BaseSuite) -> set[str]:
    """The names that a block binds."""
    targets = [
        node.target
        for node in descend(body)
        if isinstance(node, cst.AssignTarget | cst.For | cst.CompFor | cst.NamedExpr)
    ]
    parameters = [node.name for node in descend(body) if isinstance(node, cst.Param)]
    names = (part for target in (*targets, *parameters) for part in descend(target))
    return {part.value for part in names if isinstance(part, cst.Name)}


def _is_earlier(migration: Migration, node: cst.Name | cst.Attribute, bound: set[str]) -> bool:
    """Whether a name or attribute may hold parameters that the program took before the block."""
    values = migration.values(node)
    if any(isinstance(value, OptimizerValue) for value in values):
        return True
    if isinstance(node, cst.Name) and node.value in bound:
        return False
    if isinstance(node, cst.Attribute):
        owner = migration.values(node.value)
        if owner and all(isinstance(value, ModuleValue | ParametersOf) for value in owner):
            return False
    return any(isinstance(v, ParametersOf) and not v.unsharded_copy for v in values)


def write(
    migration: Migration,
    source: Source,
    call: cst.Call,
    model: str,
    given: dict[str, str],
    options: Options,
) -> None:
    """Call the context manager in place of `summon_full_params`."""
    migration.account_for(source, call.func)
    name = helper(migration, source, call, options)
    migration.put_call(source, call, name, [model, *options.arguments(given)])
    migration.step(source, call, TITLE)


def helper(migration: Migration, source: Source, at: cst.CSTNode, options: Options) -> str:
    """The name of the context manager, which the file gets if it has none."""
    top = top_level(source, at)
    torch = migration.torch(source, top)
    decorator = library_name(migration.rewrite, source, "contextlib.contextmanager", top)
    kind = migration.need(source, "torch.distributed.fsdp", "FSDPModule", top)
    sharded = migration.need(source, "torch.distributed.tensor", "DTensor", top)
    parameters = ["model"]
    parameters += [f"{name}={DEFAULTS[name]}" for name in DEFAULTS if options.varies(name)]
    lines = [
        f"@{decorator}",
        f"def {NAME}({', '.join(parameters)}):",
        '\t"""Give the modules of a sharded model whole parameters, for the time of a block."""',
        *_modules(options, kind),
        "\twhole, sharded = {}, {}",
        "\tfor module in modules:",
        f"\t\tif isinstance(module, {kind}):",
        "\t\t\tmodule.reshard()",
        "\t\tfor name, parameter in list(module.named_parameters(recurse=False)):",
        f"\t\t\tif isinstance(parameter, {sharded}):",
        "\t\t\t\tif parameter not in whole:",
        *_gather(options, torch),
        "\t\t\t\tsetattr(module, name, whole[parameter])",
        "\ttry:",
        "\t\tyield",
        "\tfinally:",
        "\t\tfor module in modules:",
        "\t\t\tfor name, parameter in list(module.named_parameters(recurse=False)):",
        "\t\t\t\tif parameter in sharded:",
        "\t\t\t\t\tsetattr(module, name, sharded[parameter])",
        *_write_back(migration, source, top, options, torch),
    ]
    return write_once(migration, source, top, NAME, lines)


def _modules(options: Options, kind: str) -> Iterable[str]:
    """The lines that list the modules whose parameters become whole."""
    if not options.may_be_on("recurse") or options.varies("recurse"):
        inner = "m is not model and isinstance(m, " + kind + ")"
        nested = [
            f"nested = {{p for m in model.modules() if {inner} for p in m.modules()}}",
            "modules = [module for module in model.modules() if module not in nested]",
        ]
        if not options.varies("recurse"):
            return [f"\t{line}" for line in nested]
        return [
            "\tmodules = list(model.modules())",
            "\tif not recurse:",
            *(f"\t\t{line}" for line in nested),
        ]
    return ["\tmodules = list(model.modules())"]


def _gather(options: Options, torch: str) -> Iterable[str]:
    """The lines that make one whole parameter."""
    indent = "\t\t\t\t\t"
    full = "parameter.full_tensor()"
    yield f"{indent}full = {full}"
    if options.may_be_on("rank0_only"):
        test = "rank0_only and " if options.varies("rank0_only") else ""
        first = "parameter.device_mesh.get_coordinate()[-1] != 0"
        yield f"{indent}if {test}{first}:"
        yield f"{indent}\tfull = parameter.to_local()"
    if options.may_be_on("offload_to_cpu"):
        if options.varies("offload_to_cpu"):
            yield f"{indent}if offload_to_cpu:"
            indent += "\t"
        yield f"{indent}full = full.cpu()"
        indent = "\t\t\t\t\t"
    yield f"{indent}full = {torch}.nn.Parameter(full, parameter.requires_grad)"
    if options.may_be_on("with_grads"):
        test = "with_grads and " if options.varies("with_grads") else ""
        yield f"{indent}if {test}parameter.grad is not None:"
        yield f"{indent}\tfull.grad = parameter.grad.full_tensor()"
    yield f"{indent}whole[parameter] = full"
    yield f"{indent}sharded[full] = parameter"


def _write_back(
    migration: Migration, source: Source, top: cst.CSTNode, options: Options, torch: str
) -> Iterable[str]:
    """The lines that write the whole parameters to the shards."""
    if not options.may_be_on("writeback"):
        return []
    function = migration.need(source, "torch.distributed.tensor", "distribute_tensor", top)
    lines = [
        "for full, parameter in sharded.items():",
        "\tlayout = parameter.device_mesh, parameter.placements",
        f"\twith {torch}.no_grad():",
        f"\t\tparameter.copy_({function}(full.detach(), *layout, src_data_rank=None))",
    ]
    if options.may_be_on("with_grads"):
        test = "with_grads and " if options.varies("with_grads") else ""
        lines += [
            f"\tif {test}full.grad is not None:",
            f"\t\tparameter.grad = {function}(full.grad, *layout, src_data_rank=None)",
        ]
    if options.varies("writeback"):
        return ["\t\tif writeback:", *(f"\t\t\t{line}" for line in lines)]
    return [f"\t\t{line}" for line in lines]


def _name(call: cst.Call) -> str:
    func = call.func
    if isinstance(func, cst.Attribute):
        return func.attr.value
    return func.value if isinstance(func, cst.Name) else ""
