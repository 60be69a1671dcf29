"""What a run notes of tensors, modules, data and the program's arguments.

Each table belongs to the module of the interpreter that it names.
"""

from __future__ import annotations

from typing import Any

from fsdplint.interpreter.torch_values import Amount, Columns, MeshPosition, ParametersOf, Rows
from fsdplint.interpreter.values import Const, ModuleValue, RankLocal, Value
from fsdplint.source.source import NodeSite
from fsdplint.trace import (
    Collective,
    CutSamples,
    DifferentiableGradient,
    ModuleMoved,
    ParameterAttached,
    Saved,
)
from fsdplint.trace.numbers import Number


class TensorTables:
    """Marks of tensors and layers, by the value or the id of the module."""

    def __init__(self) -> None:
        # `parameter_sizes`: the own parameters of layers of torch.nn with their dimensions, the
        # sizes of new tensors and parameters, and numbers that layers took for whole numbers.
        self.own_parameters: dict[str, dict[str, int | None]] = {}
        self.sizes: dict[Value, tuple[Value, ...]] = {}
        self.whole_numbers: set[Value] = set()
        # `gathered_rows`, with the tensors that certainly carry gradients and `torch.arange(n)`
        self.rows: dict[Value, Rows] = {}
        self.with_gradient: set[Value] = set()
        self.row_numbers: set[Value] = set()
        # `tensor_dtypes`, with the number of sources and whether one has the word "autocast", and
        # whether the program has hooks, which may change what a layer gets
        self.dtypes: dict[Value, str] = {}
        self.autocast = 0, False
        self.hooked = False
        # `unit_precisions`: the mixed precision of units, and the units of layers, a cache
        self.precisions: dict[str, Any] = {}
        self.units: dict[tuple[str, int, int], str | None] = {}
        # `mode_code`: the module in whose training mode alone the executed code runs, and modules
        # with such code that has an effect
        self.mode_guard: ModuleValue | None = None
        self.acting_modules: set[str] = set()
        # `local_columns`: layers whose outputs are columns, and such outputs
        self.column_layers: dict[str, Columns] = {}
        self.columns: dict[Value, Columns] = {}
        self.second_order: dict[Value, DifferentiableGradient] = {}  # `second_order`
        self.plain_tensors: set[Value] = set()  # `plain_tensors`
        # `mesh_positions`: numbers that are computed of a position in a mesh, and the places where
        # such a number chose the data of the rank
        self.positions: dict[Value, MeshPosition] = {}
        # `attached_parts`: new parameters of sharded modules, with the modules
        self.new_parameters: list[tuple[ParameterAttached, ModuleValue, Value]] = []
        self.chunks: set[Value] = set()  # lists of the parts of a tensor
        self.part_groups: set[Value] = set()  # the process groups of parts of a mesh
        self.whole_groups: set[Value] = set()  # the process groups of meshes of all ranks
        self.places: dict[Value, MeshPosition] = {}  # of the rank in the groups of mesh dimensions
        self.split_by: dict[NodeSite, MeshPosition] = {}
        self.within_samples: set[NodeSite] = set()  # such places that choose a part of each sample
        # `gradient_writes`: tensors that several gradients were joined to, with their modules
        self.joined_gradients: dict[Value, tuple[str, ...]] = {}
        # `amounts`: what is known of numbers; what Python's `sum` added, by the result; and lists,
        # by their lengths
        self.amounts: dict[Value, Amount] = {}
        self.list_sums: dict[Value, Value] = {}
        self.list_lengths: dict[Value, Value] = {}
        self.windows: dict[Value, Number] = {}  # their lengths, `list_lengths`
        self.set_orders: set[Value] = set()  # lists in the order of a set, `set_orders`
        self.probes: dict[Value, Any] = {}  # by the dataset, `data_probes`
        # `loaded_numbers`: the numbers that entries of a dict had before a load
        self.replaced_numbers: dict[Value, Any] = {}
        # `rank_factors`: products with the number of ranks, and numbers that are computed of it
        self.rank_powers: dict[Value, int] = {}
        self.computed_of_ranks: set[Value] = set()
        # the local tensors of parameters, which have the same memory
        self.local_parts: dict[Value, ParametersOf] = {}
        # `own_roots`: norms of the rank's part of gradients, and their sums over the ranks
        self.own_roots: set[Value] = set()
        self.sums_of_roots: set[Value] = set()
        # `pending_results` and `collective_arguments`: tensors that a collective still writes, and
        # the element of lists that were made as `[x] * n`
        self.pending: dict[Value, Collective] = {}
        self.repeated_lists: dict[Value, Value] = {}
        # `rank_means`: the passes over data of one rank that have begun, and whether the program
        # has added means of all ranks
        self.own_passes = 0
        self.has_mean_sums = False
        # `same_noise`: numbers that all ranks have drawn, with the place and the generator, and the
        # generators whose numbers were mixed with data of the rank (None: that of the process).
        # mixed_data: what was mixed without gradients, which a model may train on
        self.same_noise: dict[Value, tuple[NodeSite, Value | None]] = {}
        self.mixed_data: dict[Value, Value] = {}
        self.noise_mixed: set[Value | None] = set()
        self.estimates_totals = False  # `losses.note_product`


class DataTables:
    """The data and the random numbers of this rank, and the samplers."""

    def __init__(self) -> None:
        self.own_gradients: set[NodeSite] = set()  # where a rank reads its part of a gradient
        self.clocks: set[NodeSite] = set()  # where a rank reads its clock
        self.tests_of_position: set[NodeSite] = set()  # of numbers that derive from the rank
        self.names_of_processes: set[NodeSite] = set()  # its process id, or a uuid
        self.library_parts: dict[Value, NodeSite] = {}  # with the place of the split
        self.has_own_data = False  # of a rank: see `fsdplint.interpreter.rank_local`
        self.draws_own_numbers = False  # the generator of the process has a seed of the rank
        self.own_seeds: set[str] = set()  # other libraries whose generator has one
        self.unseeded = {"numpy.random", "random"}  # libraries whose generator has none
        self.drawn: set[NodeSite] = set()  # where each rank draws numbers of its own
        self.drawn_turns: dict[Value, RankLocal] = {}  # ranges of such numbers, `drawn_turns`
        # `own_picks`: what unknown code has picked by the rank, with the index of its event
        self.picks: dict[Value, int] = {}
        # `own_shuffles`: lists in an order of each rank, with the place where it comes from
        self.own_shuffles: dict[Value, NodeSite] = {}
        self.seeded: bool | None = None  # the same on all ranks (True) or not (False)
        self.process_seed: Value | None = None  # the last seed of torch; None if it is not known
        self.open_pass = ""  # the loader of a pass that `iter` began
        self.has_rank_data = False  # see `shared_draws`
        self.probe: Any = None  # of a dataset: see `data_probes`
        self.shared_draws: set[NodeSite] = set()
        self.one_sided_generators: set[Value] = set()  # some ranks alone have drawn from them
        # modules that `import_module` gives for a name that is not known, with the name
        self.named_imports: dict[Value, Any] = {}
        # what the program has stored in hydra's `ConfigStore`, by name
        self.stored_configs: dict[str, Value] = {}
        self.cut_samples: dict[Value, CutSamples] = {}
        # the dimensions that `_flatten` made one of, by the mesh and the name of this one
        self.flattened: dict[tuple[str, str], tuple[str, ...]] = {}
        self.rank_sums: dict[Value, Number] = {}  # what was added to the rank, by the sum
        self.of_each_rank: set[NodeSite] = set()  # where each of all ranks gets data of its own
        # Lists that a loop fills, with the guards at the start of this loop.
        self.growing: dict[Value, Any] = {}
        self.padded: dict[Value, int] = {}  # padded tensors, with the dimension of their length
        self.executed_orders: set[Value] = set()  # samplers of the program
        self.shuffling_samplers: set[Value] = set()  # those that have shuffled
        self.shared_iterables: set[Value] = set()  # objects that code out of sight got
        self.received: set[Value] = set()  # what derives from a broadcast tensor
        self.samplers: list[tuple[Value, str]] = []  # DistributedSamplers, with their datasets


class StateTables:
    """State dicts, and the files that have them."""

    def __init__(self) -> None:
        self.edited_states: set[str] = set()  # the names of states that the program edits in place
        self.unchanged_states: list[Value] = []  # of helpers, which nothing can have changed
        self.buffers: dict[Value, Saved] = {}  # files of the process, with the last write


class ModuleTables:
    """The values and modes of modules, by their ids."""

    def __init__(self) -> None:
        self.uninitialized: set[str] = set()  # modules with memory but without values
        # The buffers with `persistent=False`, those among them that `to_empty` left without values,
        # with its event, and those that the current forward has read.
        self.temporary_buffers: set[tuple[str, str]] = set()
        self.registered_buffers: set[tuple[str, str]] = set()  # module and name
        self.unset_buffers: dict[tuple[str, str], ModuleMoved] = {}
        self.unset_buffers_read: set[tuple[str, str]] = set()
        self.emptied_at = 0  # the number of events before the last `to_empty` of one
        self.modes: dict[str, bool | None] = {}  # of modules: see `training_modes`
        self.modes_known = True
        self.first_modes_known = True  # those in which the program makes its modules


class ArgumentTables:
    """The arguments and settings of the program, by their destination or origin."""

    def __init__(self) -> None:
        self.launcher_arguments: dict[str, NodeSite] = {}  # the calls of `add_argument`
        self.argument_choices: dict[str, tuple[str, ...]] = {}
        self.offered_settings: dict[str, tuple[object, ...]] = {}  # what settings files offer
        # The choices and the defaults; None: there may be others.
        self.argument_constants: dict[str, tuple[tuple[object, ...], tuple[object, ...]] | None]
        self.argument_constants = {}
        self.argument_texts: dict[str, str | None] = {}  # the defaults
        self.argument_defaults: dict[str, tuple[object, ...]] = {}  # () for an unknown one
        self.setting_defaults: dict[str, Value] = {}  # of fields of dataclasses, by their origin
        self.setting_fields: set[str] = set()  # the origins of such fields that a user may set
        self.environment_defaults: dict[str, Const] = {}  # of `os.environ.get()`, by the origin
        self.argument_values: dict[str, list[Value]] = {}  # objects among the parsed arguments
        self.argument_flags: dict[str, bool] = {}  # whether an argument can only be True or False


class LastEvents:
    """The number of events when something happened the last time, or may have happened."""

    def __init__(self) -> None:
        self.gradients_used_at = 0  # a use of `p.grad`, or a call that may make gradients
        self.gradients_made_at = 0  # a call that may make some; see `gradient_writes`
        self.gradients_read_at = 0  # of any tensor
        self.gradients_dropped_at = 0  # by something else than `zero_grad()` of an optimizer
        self.hooks_drop_gradients = False  # each time that they fire
        self.may_have_waited_at = 0  # for another rank
        self.saving: set[Value] = set()  # the results of asynchronous saves
        self.save_waited_at = 0  # for such a save
        self.saves_out_of_sight = False  # whether code out of sight may have such a result
        self.weights_touched_at = 0  # a call that may set some; see `rebuilt_optimizers`
