"""The language server (`fsdplint server`).

`positions` counts as editors do, `index` knows who imports whom, `analysis` checks files as they
are in the editor, `schedule` decides what is done when, `convert` makes it what the protocol wants,
and `app` is the server itself. Only `convert` and `app` import pygls.
"""
