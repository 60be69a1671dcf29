"""What the interpreter knows of parameters, state dicts, loaders, tensors and ranks."""

from fsdplint.interpreter.torch_values.amounts import Amount
from fsdplint.interpreter.torch_values.data import (
    Batches,
    GeneratorValue,
    LoaderValue,
    SamplerValue,
)
from fsdplint.interpreter.torch_values.parameters import (
    ModulePath,
    ModulesOf,
    NameTest,
    ParameterId,
    ParameterName,
    ParametersOf,
    derived,
    each_parameter,
    is_new_parameter,
)
from fsdplint.interpreter.torch_values.ranks import (
    HeldBySome,
    MeshPosition,
    MeshSize,
    RankChoice,
    RankElement,
    RankSide,
    RankTest,
    RankValue,
)
from fsdplint.interpreter.torch_values.results import (
    Length,
    NoResult,
    PossibleLists,
    note_result_use,
)
from fsdplint.interpreter.torch_values.states import (
    HelperState,
    HookHandle,
    ScalerValue,
    SchedulerValue,
    StateValue,
)
from fsdplint.interpreter.torch_values.tensors import (
    LOCAL_PART,
    Columns,
    Gather,
    LocalGradient,
    Rows,
    ShardTensor,
    TensorValue,
)

__all__ = [
    "LOCAL_PART",
    "Amount",
    "Batches",
    "Columns",
    "Gather",
    "GeneratorValue",
    "HeldBySome",
    "HelperState",
    "HookHandle",
    "Length",
    "LoaderValue",
    "LocalGradient",
    "MeshPosition",
    "MeshSize",
    "ModulePath",
    "ModulesOf",
    "NameTest",
    "NoResult",
    "ParameterId",
    "ParameterName",
    "ParametersOf",
    "PossibleLists",
    "RankChoice",
    "RankElement",
    "RankSide",
    "RankTest",
    "RankValue",
    "Rows",
    "SamplerValue",
    "ScalerValue",
    "SchedulerValue",
    "ShardTensor",
    "StateValue",
    "TensorValue",
    "derived",
    "each_parameter",
    "is_new_parameter",
    "note_result_use",
]
