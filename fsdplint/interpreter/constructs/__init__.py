"""What Python's constructs do: each function is registered for a type of node, or of value.

Nothing but `semantics` imports these modules: a construct reaches the others through `Run.eval`,
`Run.execute` and `Run.call`.
"""
