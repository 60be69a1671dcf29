"""The command `fsdplint prove`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import click


@click.command(
    "prove",
    context_settings={"ignore_unknown_options": False},
    short_help="Run a program before and after its fixes, and compare.",
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="Compare with this program instead of fixing.",
)
@click.option(
    "--nproc-per-node",
    "ranks",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Ranks on this machine.",
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="End each run after this many optimizer steps."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of torch, random and numpy."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Seconds for each run.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="cpu: a program written for CUDA runs on the CPU.",
)
@click.option(
    "--unsafe-fixes", "unsafe", is_flag=True, help="Also apply fixes that may change meaning."
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write everything to this file.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep copies and records in this new folder.",
)
@click.option(
    "--torchrun",
    "torchrun",
    multiple=True,
    metavar="OPTION",
    help="An option for torchrun itself, e.g. --torchrun=--nnodes=2.",
)
def prove_command(json_path: Path | None, torchrun: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT before and after its fixes on several ranks and give a verdict for every fix.

    What follows `--` goes to the script. Exit code 0: all is proven; 1: something is not; 2: the
    job could not be done.
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        click.echo("fsdplint prove needs torch: pip install 'fsdplint[prove]'", err=True)
        sys.exit(2)
    from fsdplint.shim.prove import Options, ProveError, prove
    from fsdplint.shim.prove_report import as_json, as_text

    # So that a terminated proof ends its ranks and removes its folder, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    try:
        proof = prove(
            Options(torchrun=torchrun, **values), say=lambda text: click.echo(text, err=True)
        )
    except ProveError as error:
        click.echo(f"fsdplint prove: {error}", err=True)
        sys.exit(2)
    click.echo(as_text(proof), nl=False)
    if json_path is not None:
        try:
            json_path.write_text(json.dumps(as_json(proof), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            click.echo(f"fsdplint prove: cannot write {json_path}: {error}", err=True)
            sys.exit(2)
    sys.exit(0 if proof.holds else 1)
