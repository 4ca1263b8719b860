"""The command line: one file per verb.

A verb imports what it needs when it is called, so that `coterie --help` answers at once. Whatever is wrong with the
input ends in one sentence on the error stream and exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from coterie.cli import cite, compare, data, demo, doctor, listing, new, paper, recommend, resume, robustness, run
from coterie.cli.interrupt import INTERRUPTED, Interrupted
from coterie.errors import CoterieError, unknown
from coterie.version import __version__

BAD_INPUT = 2
# Typer carries its own copy of Click from some version on; both have this class two steps below BadParameter.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]


class Verbs(TyperGroup):
    """Verbs that answer a misspelled one with the nearest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that is called."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown("verb", args[0], self.commands)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode=None,
    help="Train recommenders without collecting anybody's history.",
)
app.command()(run.run)
app.command()(resume.resume)
app.command()(recommend.recommend)
app.command()(compare.compare)
app.command()(paper.paper)
app.command(cls=robustness.Listing)(robustness.robustness)
app.add_typer(data.app, name="data", cls=Verbs)
app.command("list")(listing.list_algorithms)
app.command()(new.new)
app.command()(cite.cite)
app.command()(doctor.doctor)
app.command()(demo.demo)


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version."),
) -> None:
    if version:
        print(f"coterie {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the arguments are those of the process unless given."""
    try:
        code = app(args=arguments, prog_name="coterie", standalone_mode=False)
    except Interrupted as interrupted:
        return _complain(str(interrupted), INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("Interrupted.", INTERRUPTED)
    except CoterieError as error:
        return _complain(str(error), BAD_INPUT)
    except _UsageError as error:
        return 0 if _asked_for_help(error) else _complain(_usage(error), BAD_INPUT)
    except OSError as error:
        return _complain(_system(error), BAD_INPUT)
    if code == INTERRUPTED:
        return _complain("Interrupted.", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _complain(sentence: str, code: int) -> int:
    print(f"error: {sentence}" if code == BAD_INPUT else sentence, file=sys.stderr)
    return code


def _asked_for_help(error: Any) -> bool:
    """Print the help of a group of verbs that was called without one; some versions of Click call that an error."""
    if type(error).__name__ != "NoArgsIsHelpError":
        return False
    print(error.format_message())
    return True


def _usage(error: Any) -> str:
    return " ".join(error.format_message().split())


def _system(error: OSError) -> str:
    where = f"{error.filename} cannot be used: " if error.filename else ""
    return f"{where}{error.strerror or error}."
