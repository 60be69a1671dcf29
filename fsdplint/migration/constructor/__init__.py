"""What `FullyShardedDataParallel(...)` is given, and the `fully_shard` calls that it becomes.

`wrap` rewrites a call: `reader` and `mapping` read its arguments one by one (`strategy`, `meshes`,
`policy` with `policy_sources`, `precision`, `casts`, `device`, `ignored`, `buffers`), `keywords`
writes those of `fully_shard` and the lines around it, `local_functions` the small functions that it
needs. `configs` is about config objects wherever they stand, `enabled` about `enable_wrap` and
`wrap`, `dead` and `left_over` about what nobody reads once the constructor is gone.
"""
