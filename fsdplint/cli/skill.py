"""The command `fsdplint skill`."""

from __future__ import annotations

from importlib import resources

import click


@click.command("skill", short_help="Print a skill that teaches fsdplint to a coding agent.")
def skill_command() -> None:
    """Print a skill for coding agents: a Markdown file with front matter.

    Save it where the agent looks for skills, such as .claude/skills/fsdplint/SKILL.md.
    """
    click.echo(text(), nl=False)


def text() -> str:
    """The skill."""
    return resources.files("fsdplint.cli").joinpath("skill.md").read_text(encoding="utf-8")
