"""Kinds of events that tell a run how much a point of the program matters."""

from __future__ import annotations

from fsdplint.trace import (
    AsyncResultRead,
    BackwardRun,
    Called,
    Clipped,
    Collective,
    ColumnsCompared,
    ColumnsViewed,
    ContextParallel,
    CounterReadEarly,
    DataEscaped,
    EntryNeverSaved,
    EpochSet,
    ErrorCaught,
    Fsdp1Used,
    Gathered,
    GradientScaled,
    GradientsZeroed,
    GroupMissed,
    GroupOptionSet,
    HelperStateLoaded,
    HelperStateTaken,
    Imported,
    Loaded,
    LoaderIterated,
    LoaderLeft,
    MeansSummed,
    MeshFlattened,
    MethodRegistered,
    ModuleBuilt,
    ModuleCopied,
    OptimizerBuilt,
    OptimizerStepped,
    OwnNumberDivided,
    ParametersTied,
    PartialRead,
    PickedByRank,
    RankData,
    ReplacedParametersTested,
    RequiresGradSet,
    RunElsewhere,
    SameNoise,
    Saved,
    ScalerBuilt,
    ScalerStepped,
    ScalerUnscaled,
    ScalerUpdated,
    SchedulerStepped,
    Seeded,
    SetOrderUsed,
    ShardCopySet,
    Sharded,
    SharedNumbersDrawn,
    SplitPerRank,
    StateLoaded,
    StateTaken,
    SyncSwitched,
    Wrapped,
)

# Events that decide whether others are correct: their conditions are worth a configuration.
DECISIVE = (
    Wrapped, Sharded, OptimizerBuilt, StateTaken, StateLoaded, SyncSwitched, MethodRegistered,
    Gathered, ModuleCopied, ParametersTied, Clipped,
)  # fmt: skip
# Events that leave what a forward of the model does as it is. A module that is built counts when it
# gets a parent.
KEEPS_STRUCTURE = {
    AsyncResultRead, BackwardRun, Called, Clipped, Collective, ColumnsCompared, ColumnsViewed,
    ContextParallel, CounterReadEarly, EntryNeverSaved,
    DataEscaped, EpochSet, ErrorCaught, Fsdp1Used, GradientScaled, GradientsZeroed, GroupMissed,
    GroupOptionSet,
    HelperStateLoaded, HelperStateTaken, Imported, Loaded, LoaderIterated, LoaderLeft, MeansSummed,
    MeshFlattened,
    ModuleBuilt, OptimizerBuilt, OptimizerStepped, OwnNumberDivided,
    PartialRead, PickedByRank, RankData, ReplacedParametersTested, RequiresGradSet, RunElsewhere,
    Saved, ScalerBuilt, ScalerStepped, ScalerUnscaled, ScalerUpdated, SchedulerStepped, Seeded,
    SameNoise, SetOrderUsed, ShardCopySet, SharedNumbersDrawn, SplitPerRank, StateLoaded,
    StateTaken, SyncSwitched,
}  # fmt: skip
# Events about data and files: they come again with each execution of code that loads data.
OF_DATA = {
    DataEscaped, Imported, Loaded, PickedByRank, RankData, RunElsewhere, SameNoise, Seeded,
    SetOrderUsed, SharedNumbersDrawn, SplitPerRank,
}  # fmt: skip
