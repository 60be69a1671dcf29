"""Commands that run a program: its options come after `--`, and its settings from the project."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from fsdplint.cli.streams import fail

# The parameters of the commands that have other names than their options.
_PARAMETERS = {"nproc-per-node": "ranks"}


# Options of torchrun that the commands do not have themselves.
_OF_TORCHRUN = frozenset(
    {
        "duplicate-stderr-filters",
        "duplicate-stdout-filters",
        "event-log-handler",
        "local-addr",
        "local-ranks-filter",
        "logs-specs",
        "master-addr",
        "master-port",
        "max-restarts",
        "monitor-interval",
        "numa-binding",
        "rdzv-backend",
        "rdzv-conf",
        "role",
        "signals-to-handle",
        "standalone",
        "start-method",
        "tee",
        "virtual-local-rank",
    }
)


class RunsProgram(click.Command):
    """A command that runs a program. Options of the program come after `--`.

    As for torchrun, the names of its own options may have `_` for `-`.
    What is not given on the command line comes from the table `run` of the program's settings.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = args = self._with_hyphens(args)
        try:
            rest = super().parse_args(ctx, [*args])
            if not ctx.resilient_parsing:
                self._take_settings(ctx, has_arguments="--" in given)
            return rest
        except click.NoSuchOption as error:
            at = [arg.partition("=")[0] for arg in given].index(error.option_name)
            name = _option_name(error.option_name)
            if name.removeprefix("--") in _OF_TORCHRUN:
                raise click.UsageError(_torchrun_text(name, given[at:]), ctx) from error
            has_script = any(arg.endswith(".py") for arg in given[:at])
            arguments = given[:at] if has_script else ["SCRIPT"]
            options = given[at:] if has_script else [given[at]]
            command = shlex.join([*ctx.command_path.split(), *arguments, "--", *options])
            text = f"{error.format_message()}\nPut options of the program after `--`: {command}"
            raise click.UsageError(text, ctx) from error

    def _with_hyphens(self, args: list[str]) -> list[str]:
        """The arguments with the command's own names of options, up to those of the program."""
        end = args.index("--") if "--" in args else len(args)
        own = {name for parameter in self.params for name in parameter.opts}
        found = []
        for arg in args[:end]:
            name, equals, value = arg.partition("=")
            known = arg.startswith("--") and _option_name(name) in own
            found.append(f"{_option_name(name)}{equals}{value}" if known else arg)
        return [*found, *args[end:]]

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


def _option_name(name: str) -> str:
    return name.replace("_", "-")


def _torchrun_text(name: str, given: list[str]) -> str:
    """What to do with an option of torchrun. given: the option and what stands after it."""
    if name == "--standalone":
        return "torchrun's --standalone is not needed: a run on one machine is always one."
    value = given[0].partition("=")[2] or next(
        (arg for arg in given[1:2] if not arg.startswith("-") and not arg.endswith(".py")), ""
    )
    passed = f"--torchrun={name}={value}" if value else f"--torchrun={name}"
    return f"{name} is an option of torchrun: pass it as {shlex.quote(passed)}"
