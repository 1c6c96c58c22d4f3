"""The `streamgauge` program: its commands, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from streamgauge.cli.commands import (
    bench,
    calibrate,
    compare,
    durability,
    export,
    fleet,
    history,
    importing,
    probe,
    publish,
    query,
    report,
    runs,
    serve,
    study,
    submit,
    systems,
    verify,
    worker,
)
from streamgauge.cli.commands import run as run_command
from streamgauge.cli.deferred import load
from streamgauge.cli.optional_value import LiveCommand
from streamgauge.cli.unneeded import do_without
from streamgauge.vocabulary.errors import (
    FleetFailure,
    InputError,
    SystemFailure,
    SystemInputError,
    WorkerLost,
    WorkerRefused,
)
from streamgauge.vocabulary.exit_status import EPILOG, ExitStatus
from streamgauge.vocabulary.troubleshooting import of_error, see

app = typer.Typer(
    name="streamgauge",
    help="A benchmark laboratory for messaging and event-streaming systems.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=LiveCommand, epilog=EPILOG)(run_command.run)
app.command("study", cls=LiveCommand, epilog=EPILOG)(study.study)
app.command("studies")(study.studies)
app.command("bench", cls=LiveCommand, epilog=EPILOG)(bench.bench)
app.command("durability", epilog=EPILOG)(durability.durability)
app.command("report")(report.report)
app.command("compare", epilog=EPILOG)(compare.compare)
app.command("calibrate-verdicts")(calibrate.calibrate_verdicts)
app.command("history")(history.history)
app.command("serve")(serve.serve)
app.command("query")(query.query)
app.command("export")(export.export)
app.command("submit")(submit.submit)
app.command("publish")(publish.publish)
app.command("verify", epilog=EPILOG)(verify.verify)
app.command("import")(importing.import_)
app.command("probe", context_settings=probe.PASS_ON)(probe.probe)
app.add_typer(systems.app, name="systems")
app.add_typer(fleet.app, name="fleet")
app.command("worker", context_settings=probe.PASS_ON)(worker.worker)
app.command("list")(runs.list_)
app.command("show")(runs.show)
app.command("workloads")(runs.workloads)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamgauge {load('streamgauge.vocabulary.version:version')()}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of the `streamgauge` program."""
    # One thread is enough for what the lab computes, and a pool of them costs each start a fifth of its CPU, beside what is measured.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    do_without()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs a command; the exit status. Errors become sentences on standard error."""
    try:
        app(args=list(arguments), prog_name="streamgauge", standalone_mode=True)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 0
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left; Python must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.OUTPUT_CLOSED
    except Exception as error:
        status = _explain(error)
        if status is None:
            raise
        print(f"see {see([of_error(error)])}", file=sys.stderr)
        return status
    return 0


def _explain(error: Exception) -> int | None:
    """Prints an error that is somebody's and not a fault of the program; None for a fault."""
    if isinstance(error, InputError):
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return ExitStatus.WRONG_INPUT
    if isinstance(error, SystemInputError):
        print(f"error: {error}", file=sys.stderr)
        return ExitStatus.WRONG_INPUT
    if isinstance(error, (SystemFailure, FleetFailure, WorkerLost, WorkerRefused)):
        print(f"error: {error}", file=sys.stderr)
        return ExitStatus.FAILED
    if isinstance(error, OSError) and error.filename is not None:
        # A run's directory that somebody deletes while it runs, a full disk, a path that may not be written.
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return ExitStatus.FAILED
    return None
