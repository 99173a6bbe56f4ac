"""The command line: its verbs, its errors and its exit codes.

A verb is a module of this package with `command`: a function whose parameters typer reads, or a `typer.Typer` with
verbs of its own. Its help is the docstring, or HELP where that is long. Verbs import what they need when called, so
that help and lists come at once.
"""

from __future__ import annotations

import errno
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import typer

from llama_workbench.harness.machine import extras
from llama_workbench.harness.spec.exits import VerbExit

from .shared import OutputLost, write

FIRST = (
    "claims", "variants", "workloads", "new", "check", "runs", "resume", "combine", "compare", "agree",
    "compare-revisions",
    "judge-change", "bisect", "baseline", "publish", "index", "judge", "report", "dashboard", "count", "calibrate",
    "doctor", "speedscope",
)  # fmt: skip
"""The order of the help; what is not named here comes behind."""

HELP = """\
Settles claims about Llama model architectures by measurement.

To measure, run pytest (`pytest --benchmark`, or `make bench`). This command does the rest.

\b
Examples:
  workbench claims                         what is claimed, and by whom
  workbench variants team006_after         one variant, axis by axis
  workbench new variant build_mine         a first version to edit
  workbench check build_mine.py            would my variant pass its gates, and why not?
  workbench compare BASE NEW               has anything become slower? (for CI)
  workbench agree RUN RUN                  does the next run say the same?
  workbench compare-revisions main . m:f   is m:f slower now? (--call gives its arguments)
  workbench judge-change m:f --call b:made is my change faster, and right? JSON, for programs
  workbench bisect v1.2 main m:f           which commit made it slower?
  workbench resume results/runs/ID         continue a run that was cut off, or has open verdicts
  workbench combine RUN RUN                runs of several machines: what holds on each of them?
  workbench judge results/runs/ID          judge a run again, even one that was killed
  workbench dashboard results/runs/ID      the same in a browser, with all its evidence
  workbench report RUN --claim ID --html F one claim's evidence as a page to share
  workbench export results/runs/ID         its times, for a service that draws them over commits
  workbench count BASE NEW                 how many instructions a call of each executes
  workbench calibrate                      how often verdicts are wrong on this machine
  workbench runs                           the runs on this disk
  workbench baseline save RUN main         save a run to compare with later
  workbench publish RUN s3://bucket/runs/ID copy a run to where others read it
  workbench index s3://bucket/runs         rebuild the list of the runs there
  workbench doctor                         is this machine fit to measure?
  workbench speedscope                     install the viewer for raw profiles

\b
Every command says more with --help. Exit codes, as far as a command has them:
"""
HELP += VerbExit.listed() + "\n"


def verbs() -> dict[str, ModuleType]:
    """The modules beside this one that have `command`, by verb ("-" for "_"), in the order of the help."""
    folder = import_module(__package__).__path__
    modules = {entry.name: import_module(f"{__package__}.{entry.name}") for entry in pkgutil.iter_modules(folder)}
    commands = {name.replace("_", "-"): module for name, module in modules.items() if hasattr(module, "command")}
    return {name: commands[name] for name in dict.fromkeys([*FIRST, *commands])}


def build() -> typer.Typer:
    """The command with all its verbs."""
    app = typer.Typer(
        name="workbench",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=HELP,
    )
    app.callback(invoke_without_command=True)(_start)
    for name, module in verbs().items():
        command = module.command
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, help=getattr(module, "HELP", None))(command)
    return app


def _start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script. An error is one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _show_warning
        sys.exit(_exit_code(arguments))


def _exit_code(arguments: Sequence[str] | None) -> int:
    try:
        code = build()(args=arguments, prog_name="workbench", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except OutputLost as lost:
        # What is left in the buffer must not be tried again on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if lost.errno == errno.EPIPE:  # whoever read our output has gone (`workbench claims | head`)
            return 141
        sys.stderr.write(f"workbench: cannot write the output ({os.strerror(lost.errno)})\n")
        return VerbExit.COULD_NOT
    except KeyboardInterrupt:
        return VerbExit.INTERRUPTED
    except Exception as error:
        lines = _message(error)
        if lines is None:
            raise
        sys.stderr.writelines(f"workbench: {line}\n" for line in lines)
        return VerbExit.COULD_NOT


FOR_USERS = {
    "CacheError", "CalibrationError", "ClaimError", "ConfigError", "DataError", "ExportError", "Failure",
    "MeasureError", "OutsideVariantError", "PlanError", "ReadmeError", "RunError", "SpeedscopeError", "UnknownVariant",
}  # fmt: skip
"""Our classes of errors whose text says what to do, and all that are derived from them. By name: to import them all
would take seconds, and some need packages that are not there."""


def _message(error: Exception) -> list[str] | None:
    """Lines about an error that the user can fix; None for a fault of ours, which keeps its traceback."""
    if usage := getattr(error, "format_message", None):  # typer's own, whichever class of which version it is
        return [f"{_one_line(usage())} (see workbench --help)"]
    if isinstance(error, ModuleNotFoundError) and (missing := extras.told(error)):
        return [missing]
    ours = (kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith("llama_workbench."))
    if not FOR_USERS.intersection(ours):
        return None
    return [_one_line(line) for line in str(error).splitlines()] or [type(error).__name__]


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    sys.stderr.write(f"workbench: warning: {_one_line(message)}\n")


def _one_line(text: object) -> str:
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(text)).split())


if __name__ == "__main__":
    main()
