"""The constructs of Python: functions that are registered for a type of node or value.

Only `semantics` imports these modules. A construct reaches the others through `Run.eval`,
`Run.execute` and `Run.call`.
"""
