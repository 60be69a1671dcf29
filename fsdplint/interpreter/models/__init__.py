"""What the functions and methods of Python and torch mean for a trace.

Each module registers its models when it is imported; see `registry` and `semantics`.
"""
