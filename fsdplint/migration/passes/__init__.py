"""The passes of a migration, in their order.

The text of a statement is put together from the new texts of its parts (`context`), so a pass that
rewrites a part comes before the pass that rewrites what holds it.
"""

from __future__ import annotations

from collections.abc import Callable

from fsdplint.migration.constructor import configs, strategy
from fsdplint.migration.passes.constructor import (
    check_forward_methods,
    rewrite_class,
    rewrite_enable_wrap,
)
from fsdplint.migration.passes.remaining import (
    check_class_names,
    check_old_loads,
    check_program,
    check_references,
    drop_aliases,
    drop_imports,
    drop_variables,
)
from fsdplint.migration.passes.state import PassState
from fsdplint.migration.passes.state_dicts import (
    read_set_types,
    rewrite_optimizer_loads,
    rewrite_typed_states,
    rewrite_untyped_states,
)
from fsdplint.migration.passes.training import (
    collect_enable_wrap,
    collect_summons,
    rewrite_choices,
    rewrite_gradients,
    rewrite_wrapper_members,
    write_summons,
)
from fsdplint.migration.passes.values import (
    delete_unread_values,
    follow_aliases,
    keep_read_policies,
    resolve_imports,
    rewrite_enum_reads,
    rewrite_mesh_names,
    rewrite_offload_reads,
    rewrite_precision_reads,
    rewrite_values,
)
from fsdplint.migration.state_dicts import unread_configs
from fsdplint.migration.training import applied, loop, wrapper

# The modules whose functions register themselves as rewriters (`rewriters`).
REWRITERS = (applied, configs, strategy, loop, unread_configs, wrapper)
Pass = Callable[[PassState], None]

PASSES: tuple[Pass, ...] = (
    # Names and values: they are parts of everything else.
    follow_aliases,
    resolve_imports,
    delete_unread_values,
    keep_read_policies,
    rewrite_mesh_names,
    rewrite_enum_reads,
    rewrite_values,
    rewrite_precision_reads,
    rewrite_offload_reads,
    # Blocks that lose their head, and training code in them.
    collect_enable_wrap,
    collect_summons,
    rewrite_wrapper_members,
    write_summons,
    rewrite_choices,
    rewrite_gradients,
    # State dicts of models and optimizers.
    read_set_types,
    rewrite_typed_states,
    rewrite_untyped_states,
    rewrite_optimizer_loads,
    # The constructor, whose arguments the passes above have rewritten.
    rewrite_enable_wrap,
    rewrite_class,
    check_forward_methods,
    # References that no pass has accounted for block.
    check_program,
    drop_aliases,
    check_references,
    check_class_names,
    check_old_loads,
    drop_imports,
    drop_variables,
)
