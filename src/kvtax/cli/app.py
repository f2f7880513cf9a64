"""The typer app: help, completion, and the command lines that `plain_words` leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer._click.core import Command as ClickCommand  # typer >= 0.26 carries its own click; pyproject pins < 0.29
from typer._click.core import Context
from typer._click.exceptions import ClickException, NoSuchOption
from typer._click.formatting import HelpFormatter
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from kvtax.cli import COMMANDS, load_command
from kvtax.cli.exits import UsageError
from kvtax.cli.options import FLAG, MANY, Command, Option
from kvtax.deployment import ENGINES

ABOUT = (
    "Where the VRAM of an inference server goes, how many requests fit, and what to change. To the byte, and offline."
)


def run_app(words: Sequence[str]) -> int:
    """Read a command line with typer and run it; return its exit code.

    Raises:
        UsageError: the line cannot be understood.
    """
    if not words:
        words = ["--help"]
    try:
        code = get_command(_app()).main(args=list(words), prog_name="kvtax", standalone_mode=False)
    except NoSuchOption as error:
        closest = ", ".join(sorted(error.possibilities or ()))
        hint = f"did you mean {closest}?" if closest else "--help lists the options"
        raise UsageError(f"there is no option {error.option_name}", hint=hint) from None
    except ClickException as error:
        where = f"kvtax {words[0]}" if words[0] in COMMANDS else "kvtax"
        raise UsageError(error.format_message().rstrip("."), hint=f"{where} --help shows how it is used") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _app() -> typer.Typer:
    app = typer.Typer(
        cls=_Group,
        invoke_without_command=True,
        help=ABOUT,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _start(
        ctx: typer.Context,
        version: bool = typer.Option(False, "--version", help="Show the version and stop."),
        json: bool = typer.Option(False, "--json", help="With --version: as JSON."),
    ) -> None:
        if version:
            from kvtax.cli.version import show_version

            raise typer.Exit(show_version(json))
        if ctx.invoked_subcommand is None:
            raise UsageError("no command is given", hint="kvtax --help lists the commands")

    return app


class _Group(TyperGroup):
    """The commands of COMMANDS, each imported when it is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> ClickCommand | None:
        if cmd_name in COMMANDS:
            return make_click_command(load_command(cmd_name))
        if ctx.resilient_parsing:
            return None
        from difflib import get_close_matches

        closest = ", ".join(get_close_matches(cmd_name, COMMANDS))
        hint = f"did you mean {closest}?" if closest else "kvtax --help lists the commands"
        raise UsageError(f"there is no command {cmd_name[:64]!r}", hint=hint)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        _write_examples(formatter, _EXAMPLES)


_EXAMPLES = (
    ("one model on one card", "kvtax budget -m llama-3-8b -g a100-80 --context 8k"),
    ("the same for a program", "kvtax budget -m llama-3-8b -g a100-80 --context 8k --json"),
    ("one model on the common cards", "kvtax budget -m qwen3-32b --context 32k"),
)


class _Command(TyperCommand):
    """A command whose help is written from its own table."""

    table: Command

    def format_usage(self, ctx: Context, formatter: HelpFormatter) -> None:
        words = [
            (argument.metavar if argument.required else f"[{argument.metavar}]") + ("..." if argument.many else "")
            for argument in self.table.arguments
        ]
        formatter.write_usage(ctx.command_path, " ".join([*words, "[OPTIONS]"]))

    def format_help_text(self, ctx: Context, formatter: HelpFormatter) -> None:
        for paragraph in self.table.about.split("\n\n"):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(paragraph)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        if self.table.arguments:
            groups["Arguments"] = [(argument.metavar, argument.help) for argument in self.table.arguments]
        for option in self.table.options:
            groups.setdefault(option.group, []).append((_shown(option), option.help))
        groups.setdefault("Output", []).append(("-h, --help", "Show this and stop."))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=36)

    def format_epilog(self, ctx: Context, formatter: HelpFormatter) -> None:
        _write_examples(formatter, self.table.examples)


def _shown(option: Option) -> str:
    flags = ", ".join(option.flags + option.off)
    return flags if option.kind == FLAG else f"{flags} {option.metavar}"


def _write_examples(formatter: HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    formatter.write_paragraph()
    formatter.write("Examples:\n")
    for about, line in examples:
        formatter.write(f"  # {about}\n  {line}\n")


def make_click_command(command: Command) -> ClickCommand:
    """A command of ours as typer runs it."""
    params: list[Any] = [
        TyperArgument(
            param_decls=[argument.name],
            metavar=argument.metavar,
            required=argument.required,
            help=argument.help,
            nargs=-1 if argument.many else 1,
            autocompletion=_complete(argument.name),
        )
        for argument in command.arguments
    ]
    params += [_make_option(option) for option in command.options]

    def run(**values: Any) -> int:
        many = [option.name for option in command.options if option.kind == MANY]
        many += [argument.name for argument in command.arguments if argument.many]
        for name in many:
            values[name] = tuple(values[name] or ())
        return command.run(values)

    made = _Command(
        command.name,
        params=params,
        callback=run,
        help=command.about,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.table = command
    return made


def _complete(option: str) -> Callable[..., list[str]] | None:
    """What a shell offers for a value, None for nothing."""

    def models(_ctx: Context, _words: list[str], incomplete: str) -> list[str]:
        from kvtax.sources.models import list_models

        names = [name for entry in list_models() for name in (*entry.aliases, entry.id)]
        return [name for name in names if name.startswith(incomplete)]

    def cards(_ctx: Context, _words: list[str], incomplete: str) -> list[str]:
        from kvtax.sources.gpus import list_gpus

        return [gpu.id for gpu in list_gpus() if gpu.id.startswith(incomplete)]

    def words(_ctx: Context, _words: list[str], incomplete: str) -> list[str]:
        return [word for word in _WORDS[option] if word.startswith(incomplete)]

    return {"model": models, "model_argument": models, "gpu": cards}.get(option) or (
        words if option in _WORDS else None
    )


_WORDS = {
    "format": ("table", "plain", "json", "markdown", "csv", "html"),
    "color": ("auto", "always", "never"),
    "engine": ENGINES,
    "action": ("dir", "clear"),
}


def _make_option(option: Option) -> TyperOption:
    if option.kind == FLAG:
        flags = list(option.flags + option.also)
        declarations = [
            option.name,
            *(f"{flag}/{off}" for flag, off in zip(flags, option.off, strict=False)),
            *flags[len(option.off) :],
        ]
        return TyperOption(param_decls=declarations, is_flag=True, default=None, help=option.help)
    declarations = [option.name, *option.flags, *option.also]
    return TyperOption(
        param_decls=declarations,
        multiple=option.kind == MANY,
        default=None,
        help=option.help,
        type=str,
        autocompletion=_complete(option.name),
    )
