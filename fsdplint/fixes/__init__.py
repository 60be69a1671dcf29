"""Rewrites that several rules and the migration share: functions over a `Rewrite` and libcst nodes.

They import libcst, so a rule imports them inside its `fix`, not at the top of its file.
"""
