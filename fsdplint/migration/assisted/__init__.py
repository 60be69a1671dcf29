"""Assisted migration: code that no rewrite fits becomes statements that raise `NotImplementedError`.

The planner plans a program again and again. After each round the statements of its blockers are set
aside: no pass rewrites them or looks at them. When no blocker is left, each statement that was set
aside is replaced by its own lines as a comment and a `raise` that names the decision.
"""
