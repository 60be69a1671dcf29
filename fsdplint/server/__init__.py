"""The language server (`fsdplint server`).

`positions` converts positions to those of editors, `index` records which file imports which,
`analysis` checks files with the texts that the editor has, `schedule` decides when to check what,
and `views` maps a notebook to its cells. These five do not import pygls.

`language_server` holds the state of the server, `documents` and `answers` handle notifications and
requests, `convert` turns findings into types of the protocol, `app` puts the server together, and
`session` reads messages and ends the session.
"""
