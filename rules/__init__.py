"""The rules: one file each, found by `fsdplint.rule.all_rules`."""

import fsdplint.source.quick_libcst  # noqa: F401 (before anything imports libcst)
