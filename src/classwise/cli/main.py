"""The command line: its commands, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from classwise.cli import (
    audit,
    catalogue,
    demo,
    dossier,
    leaderboard,
    repair,
    reproduce,
    results,
    studies,
    training,
    zoo,
)
from classwise.core.errors import UserError
from classwise.core.stopping import Stopped, exit_code, stopping
from classwise.core.version import __version__


class _Commands(TyperGroup):
    """The commands. A value that is an empty text is a mistake, of a shell variable mostly: ``--out ""`` is no folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for before, word in zip(["", *args], args, strict=False):
            if not word or (word.startswith("--") and word.endswith("=")):
                raise UserError(
                    f"{(before if not word else word[:-1]) or 'an argument'} has an empty value; give one, or leave it out."
                )
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="classwise",
    cls=_Commands,
    help="Class-by-class adversarial robustness: know your weakest class before an attacker does.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"classwise {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Class-by-class adversarial robustness."""


_AUDITS, _MODELS, _PAPERS, _MORE = "Audits", "Better models", "Papers", "What there is"  # panels of the help
app.command(rich_help_panel=_AUDITS)(audit.audit)
app.command(rich_help_panel=_AUDITS)(results.show)
app.command(rich_help_panel=_AUDITS)(results.merge)
app.command(rich_help_panel=_AUDITS)(results.compare)
app.command(rich_help_panel=_AUDITS)(results.report)
app.command(rich_help_panel=_AUDITS)(dossier.dossier)
app.command(rich_help_panel=_AUDITS)(results.figure)
app.add_typer(leaderboard.app, name="leaderboard", rich_help_panel=_AUDITS)
app.command(rich_help_panel=_MODELS)(training.train)
app.command(rich_help_panel=_MODELS)(repair.repair)
app.command("pseudo-label", rich_help_panel=_MODELS)(training.pseudo_label)
app.command("study", cls=studies.StudyCommand, context_settings=studies.STUDY_CONTEXT, rich_help_panel=_PAPERS)(
    studies.study
)
app.command("reproduce", rich_help_panel=_PAPERS)(reproduce.reproduce)
app.command(rich_help_panel=_PAPERS)(catalogue.cite)
app.command(rich_help_panel=_MORE)(demo.demo)
app.command("list", rich_help_panel=_MORE)(catalogue.list_)
app.add_typer(zoo.app, name="zoo", rich_help_panel=_MORE)
app.command("serve", add_help_option=False, context_settings=studies.STUDY_CONTEXT, rich_help_panel=_MORE)(
    catalogue.serve
)


def _wait_politely() -> None:
    """Have torch's threads give their core up soon when they wait for each other; read when torch is first imported.

    By default they wait busily, for the sake of a few percent. Where somebody else uses the same cores, small networks
    then train more than ten times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def main() -> None:
    """Run the command line; a user's mistake is a sentence and exit code 2, not a traceback.

    Who closes the pipe that is printed into (``| head -1``) ends it as SIGPIPE would, with 141; a signal, with 128 and
    its number.
    """
    _wait_politely()
    with stopping():
        try:
            try:
                app()
            finally:
                sys.stdout.flush()
        except UserError as error:
            _fail(str(error))
        except KeyboardInterrupt as stop:
            print("stopped.", file=sys.stderr)
            sys.exit(exit_code(stop))
        except SystemExit as leave:
            _leave_for(leave)
            raise
        except BrokenPipeError:
            _print_no_more()
            sys.exit(_PIPE_CLOSED)
        except OSError as error:
            if error.filename is not None:
                _fail(f"{error.filename}: {error.strerror or error}.")
            if error.errno not in _NO_ROOM:
                raise
            _print_no_more()
            _fail(f"cannot write what is to be printed: {error.strerror or error}.")


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    sys.exit(2)


def _leave_for(reason: BaseException | None) -> None:
    """Leave by the code of a closed pipe or of a signal, where an exit is due to one."""
    while reason is not None:
        if isinstance(reason, BrokenPipeError):
            sys.exit(_PIPE_CLOSED)
        if isinstance(reason, Stopped):
            sys.exit(exit_code(reason))
        reason = reason.__cause__ or reason.__context__


def _print_no_more() -> None:
    """Let what is still in the buffer of the output go nowhere, instead of failing once more at the very end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_PIPE_CLOSED = 141  # 128 and the number of SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


if __name__ == "__main__":
    main()
