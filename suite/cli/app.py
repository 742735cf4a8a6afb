"""The application: commands by name, of which only the one that is asked for is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from suite.cli.commands import ABOUT, COMMANDS, HEADINGS, Command, Group
from suite.cli.help_layout import GroupedCommand
from suite.cli.old_spellings import todays_command
from suite.cli.saved_help import content_width
from suite.spec.terminal import say

#: what Typer raises for a command line that cannot be parsed, of whichever Click it holds
UsageProblem = sys.modules[typer.BadParameter.__module__].UsageError
#: columns of the names of commands, the same under each heading
_NAMES = max(map(len, COMMANDS))


class Commands(TyperGroup):
    """A group whose commands are listed from the table and imported when one is run, explained or completed."""

    def __init__(self, *, table: Mapping[str, Command | Group] = COMMANDS, default: str = "", **settings: Any) -> None:
        listed = {
            name: TyperCommand(name, short_help=entry.summary, rich_markup_mode=None) for name, entry in table.items()
        }
        super().__init__(**{**settings, "commands": listed})
        self._table, self._default = table, default

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Text is as wide as the saved help would be."""
        return super().make_context(info_name, args, parent, **{"max_content_width": content_width(), **extra})

    def main(self, args: Any = None, *more: Any, **settings: Any) -> Any:
        """What cannot be parsed is told as JSON too where the command line asks for it."""
        words = sys.argv[1:] if args is None else args
        if not settings.get("standalone_mode", True) or "--json" not in words:
            return super().main(args, *more, **settings)
        from suite.cli.exits import print_error

        try:
            code = super().main(args, *more, **{**settings, "standalone_mode": False})
        except UsageProblem as error:
            error.show()
            print_error(error.format_message(), error.exit_code)
            code = error.exit_code
        sys.exit(code)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Those of the application under its headings."""
        if self._table is not COMMANDS:
            super().format_commands(ctx, formatter)
            return
        for heading, names in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{_NAMES}}", self._table[name].summary) for name in names])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A group that has a default command is that one where the first word names no other."""
        args = todays_command(args) if self._table is COMMANDS else args
        names_one = bool(args) and (args[0] in self._table or args[0] in ctx.help_option_names)
        given = [self._default, *args] if self._default and not names_one and not ctx.resilient_parsing else args
        return super().parse_args(ctx, given)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that a word names. Lists and completions of names never come here."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and load(listed.name or "", self._table[listed.name or ""]), rest


def load(name: str, entry: Command | Group) -> TyperCommand | TyperGroup:
    """The command as the command line runs it. Its module is imported here."""
    if isinstance(entry, Group):
        return Commands(
            table=entry.commands,
            default=entry.default,
            name=name,
            help=entry.help,
            no_args_is_help=True,
            rich_markup_mode=None,
        )
    module, _, function = entry.function.partition(":")
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name, cls=GroupedCommand, short_help=entry.summary)(
        getattr(import_module(f"suite.cli.{module}"), function)
    )
    made = typer.main.get_command(single)
    assert isinstance(made, TyperCommand)
    return made


def _print_version(wanted: bool) -> None:
    if wanted:
        from suite.cli.main import version_line

        say(version_line())
        raise typer.Exit


def _suite(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """What holds for every command."""


app = typer.Typer(
    name="suite",
    cls=Commands,
    help=ABOUT,
    callback=_suite,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
