"""The rules: one file each, found by `fsdplint.rule.all_rules`."""
