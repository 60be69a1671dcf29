"""Rewrites the calls of `FullyShardedDataParallel(...)` and their arguments.

`wrap` rewrites a call, and `wrap_statement` writes its statement. `constructor_arguments`, `reader` and
`mapping` read the arguments one by one, with `strategy`, `meshes`, `precision`, `casts`, `device`,
`ignored` and `buffers`. `policy_reader` reads wrapping policies, with the other `policy_*` modules.
`keywords` writes the keywords of `fully_shard` and the lines around the call, `local_functions` the
functions that the new code calls, at their `helper_place`. `configs` rewrites config objects everywhere, `enabled` rewrites
`enable_wrap` and `wrap`, and `unused_policies` and `unused_variables` delete what loses its last reader.
"""
