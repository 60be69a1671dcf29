"""Commands that run a program: its options come after `--`, and its settings from the project."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from fsdplint.cli.streams import fail

# The parameters of the commands that have other names than their options.
_PARAMETERS = {"nproc-per-node": "ranks"}


class RunsProgram(click.Command):
    """A command that runs a program. Options of the program come after `--`.

    What is not given on the command line comes from the table `run` of the program's settings.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            rest = super().parse_args(ctx, args)
            if not ctx.resilient_parsing:
                self._take_settings(ctx, has_arguments="--" in given)
            return rest
        except click.NoSuchOption as error:
            at = [arg.partition("=")[0] for arg in given].index(error.option_name)
            has_script = any(arg.endswith(".py") for arg in given[:at])
            arguments = given[:at] if has_script else ["SCRIPT"]
            options = given[at:] if has_script else [given[at]]
            command = shlex.join([*ctx.command_path.split(), *arguments, "--", *options])
            text = f"{error.format_message()}\nPut options of the program after `--`: {command}"
            raise click.UsageError(text, ctx) from error

    def _take_settings(self, ctx: click.Context, *, has_arguments: bool) -> None:
        """Replace defaults by settings. has_arguments: whether `--` says what the program gets."""
        from fsdplint.config.settings import SettingsError
        from fsdplint.config.settings_finder import SettingsFinder

        script: Path = ctx.params["script"]
        try:
            # A name that the system refuses is reported where the program is read.
            settings = SettingsFinder().of_folder(script.absolute().parent)
        except SettingsError as error:
            fail(str(error))
        for option, value in settings.run.options.items():
            name = _PARAMETERS.get(option, option)
            if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
                ctx.params[name] = value
        if not has_arguments and not ctx.params["args"]:
            ctx.params["args"] = settings.arguments_of(script)
