"""The command `fsdplint plan`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fsdplint.cli.options import GivenPath
from fsdplint.cli.streams import CLEAN, FAILED, fail


@click.command("plan", short_help="Show what programs shard, without a run.")
@click.argument("paths", nargs=-1, type=GivenPath())
@click.option(
    "--output-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the plan.",
)
def plan_command(paths: tuple[Path, ...], output_format: str) -> None:
    """Show the sharding plan of the programs in files and folders (by default the current folder).

    The plan has the units as a tree: the class, the mesh and the placements, the options, which
    parameters each unit shards, and which stay in the root. The units of an FSDP1 program are those
    that FSDP2 would have. The programs are not run.

    Exit codes: 0, or 2 if something could not be read.
    """
    from fsdplint.comparison.unit_report import as_json, as_text
    from fsdplint.config.settings import SettingsError
    from fsdplint.edits.journal import Interrupted
    from fsdplint.engine.planning import plans

    try:
        result = plans(paths or (Path(),))
    except (SettingsError, Interrupted) as error:
        fail(str(error))
    for problem in result.problems:
        click.echo(problem, err=True)
    for line in (as_json if output_format == "json" else as_text)(result):
        click.echo(line)
    sys.exit(FAILED if result.problems else CLEAN)
