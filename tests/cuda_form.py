"""The fixtures as they would be written for machines with CUDA devices and NCCL only.

A fixture runs on both kinds of machines. `cuda_form` leaves only what is for CUDA, moves models and
batches by `.cuda()` out of pinned memory, names devices by numbers, and puts around every backward
what training scripts measure there: events, streams, statistics of memory. None of that changes
what is computed, so the results are those of the fixture on a machine without CUDA, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

_AVAILABLE = m.Call(func=m.Attribute(attr=m.Name("is_available")))
_IS_CUDA = m.Comparison(
    left=m.Attribute(attr=m.Name("type")),
    comparisons=[
        m.ComparisonTarget(m.Equal(), m.SimpleString('"cuda"') | m.SimpleString("'cuda'"))
    ],
)
_FLAG = m.Name("cuda") | m.Name("use_cuda")
_ON_CUDA = _AVAILABLE | _IS_CUDA | _FLAG
_DEVICE = m.Name("device") | m.Name("dev") | m.Attribute(attr=m.Name("device"))
_CURRENT = "torch.cuda.current_device()"

_STARTED = """\
torch.cuda.manual_seed_all(0)
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
assert torch.version.cuda and torch.cuda.is_bf16_supported() and dist.is_nccl_available()
assert torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory > 0
"""
_BEFORE_BACKWARD = """\
torch.cuda.nvtx.range_push("backward")
began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
began.record()
"""
_AFTER_BACKWARD = """\
ended.record()
torch.cuda.nvtx.range_pop()
aside = torch.cuda.Stream()
aside.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(aside):
    mark = torch.zeros(1, device="cuda", dtype=torch.float32).to("cuda", non_blocking=True)
mark.record_stream(torch.cuda.current_stream())
torch.cuda.current_stream().wait_event(aside.record_event())
torch.cuda.synchronize()
assert began.elapsed_time(ended) >= 0.0
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
assert torch.cuda.memory_stats().get("num_alloc_retries", 0) == 0
"""


def cuda_form(text: str) -> str:
    """A program's file in this form."""
    module = cst.parse_module(text)
    form = _Form()
    module = module.visit(form)
    code = module.code
    if "torch.cuda" in code and "import torch\n" not in code:
        code = _with_import(code)
    assert "gloo" not in code and "is_available()" not in code.replace("is_nccl_available()", "")
    return code


def _with_import(code: str) -> str:
    module = cst.parse_module(code)
    first = next(
        index
        for index, one in enumerate(module.body)
        if m.matches(one, m.SimpleStatementLine(body=[m.Import() | m.ImportFrom()]))
        and "__future__" not in module.code_for_node(one)
    )
    body = [*module.body[:first], *_lines("import torch\n"), *module.body[first:]]
    return module.with_changes(body=body).code


class _Form(m.MatcherDecoratableTransformer):
    def __init__(self) -> None:
        super().__init__()
        self.started = self.measured = False

    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.If | cst.FlattenSentinel[cst.BaseStatement]:
        """`if torch.cuda.is_available(): ... else: ...`: the first."""
        if not m.matches(updated_node.test, _ON_CUDA):
            return updated_node
        assert isinstance(updated_node.body, cst.IndentedBlock)
        return cst.FlattenSentinel(updated_node.body.body)  # type: ignore[arg-type]

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        return updated_node.body if m.matches(updated_node.test, _ON_CUDA) else updated_node

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(body=_after_return(self._measured(updated_node.body)))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=self._measured(updated_node.body))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = updated_node.func.attr.value if m.matches(updated_node.func, m.Attribute()) else ""
        args = updated_node.args
        if name == "to" and len(args) == 1 and m.matches(args[0].value, _DEVICE):
            return _moved(updated_node)
        if name == "init_process_group":
            return _with(updated_node, device_id=f'torch.device("cuda", {_CURRENT})')
        if name == "barrier":
            return _with(updated_node, device_ids=f"[{_CURRENT}]")
        if name == "init_device_mesh" or m.matches(updated_node.func, m.Name("init_device_mesh")):
            return updated_node.with_changes(
                args=[args[0].with_changes(value=cst.SimpleString('"cuda"')), *args[1:]]
            )
        if m.matches(updated_node.func, m.Name("DataLoader")):
            return _with(updated_node, pin_memory="True")
        return updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        keyword = updated_node.keyword.value if updated_node.keyword else ""
        if keyword == "device_id" and m.matches(updated_node.value, _DEVICE):
            return updated_node.with_changes(value=cst.parse_expression(_CURRENT))
        if keyword == "device" and m.matches(updated_node.value, m.Name("device")):
            return updated_node.with_changes(value=cst.SimpleString('"cuda"'))
        if keyword == "map_location":
            value = cst.parse_expression('f"cuda:{torch.cuda.current_device()}"')
            return updated_node.with_changes(value=value)
        if keyword == "offload_to_cpu":
            return updated_node.with_changes(value=cst.Name("True"))
        return updated_node

    def _measured(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        found: list[cst.BaseStatement] = []
        for one in body:
            if _is_call(one, "backward") and not self.measured:
                self.measured = True
                found += [*_lines(_BEFORE_BACKWARD), one, *_lines(_AFTER_BACKWARD)]
            elif _is_call(one, "set_device") and not self.started:
                self.started = True
                found += [one, *_lines(_STARTED)]
            elif not _is_flag(one):
                found.append(one)
        return found


def _is_call(statement: cst.CSTNode, name: str) -> bool:
    call = m.Call(func=m.Attribute(attr=m.Name(name)))
    return m.matches(statement, m.SimpleStatementLine(body=[m.Expr(call)]))


def _is_flag(statement: cst.CSTNode) -> bool:
    """`use_cuda = torch.cuda.is_available()`, and defaults for machines without it."""
    cpu = m.Call(func=m.Attribute(attr=m.Name("device")), args=[m.Arg(m.SimpleString('"cpu"'))])
    values = _AVAILABLE | cpu | m.SimpleString('"gloo"')
    return m.matches(statement, m.SimpleStatementLine(body=[m.Assign(value=values)]))


def _after_return(body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Without what stands behind a return: the branch for other machines."""
    found = []
    for one in body:
        found.append(one)
        if m.matches(one, m.SimpleStatementLine(body=[m.Return()])):
            break
    return found


def _moved(call: cst.Call) -> cst.Call:
    """`model.to(device)` and `batch.to(device)`."""
    assert isinstance(call.func, cst.Attribute)
    owner = call.func.value
    is_model = m.Name("model") | m.Call(func=m.Name())
    if m.matches(owner, is_model) or m.matches(owner, m.Call(func=m.Attribute(m.Name("nn")))):
        return cst.ensure_type(_of(owner, "cuda()"), cst.Call)
    return cst.ensure_type(
        _of(owner, f"pin_memory().cuda({_CURRENT}, non_blocking=True)"), cst.Call
    )


def _of(owner: cst.BaseExpression, code: str) -> cst.BaseExpression:
    whole = cst.parse_expression(f"OWNER.{code}")
    return cst.ensure_type(
        m.replace(whole, m.Name("OWNER"), owner),
        cst.BaseExpression,  # type: ignore[type-abstract]
    )


def _with(call: cst.Call, **more: str) -> cst.Call:
    given = {arg.keyword.value for arg in call.args if arg.keyword}
    added = [
        cst.Arg(cst.parse_expression(value), keyword=cst.Name(name))
        for name, value in more.items()
        if name not in given
    ]
    args = [arg.with_changes(comma=cst.MaybeSentinel.DEFAULT) for arg in call.args]
    return call.with_changes(args=[*args, *added])


def _lines(code: str) -> Sequence[cst.BaseStatement]:
    return cst.parse_module(code).body  # type: ignore[return-value]
