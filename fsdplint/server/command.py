"""`fsdplint server`."""

from __future__ import annotations

import sys

import click


@click.command("server", short_help="A language server for editors.")
@click.option("--stdio", is_flag=True, help="Over standard input and output, as always.")
def server_command(stdio: bool) -> None:
    """Answer an editor over standard input and output (Language Server Protocol)."""
    import importlib.util

    if importlib.util.find_spec("pygls") is None:
        click.echo("fsdplint server needs pygls: pip install 'fsdplint[lsp]'", err=True)
        sys.exit(2)
    from fsdplint.server.app import create
    from fsdplint.server.session import serve

    sys.setswitchinterval(0.001)  # the event loop must answer while a check runs
    sys.exit(serve(create()))
