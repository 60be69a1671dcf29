"""The language server (`fsdplint server`).

`positions` counts as editors do, `index` knows who imports whom, `analysis` checks files as they
are in the editor, `schedule` decides what is done when, and `views` knows the cells that a notebook
consists of. `app` is the server itself, `documents` and `answers` what it is told and asked, and
`convert` makes of findings what the protocol wants; only these four import pygls.
"""
