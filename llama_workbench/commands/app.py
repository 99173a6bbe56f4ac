"""The command line: its commands, its errors and its exit codes.

A command is a module of this package with `command`: a function whose parameters typer reads, or a `typer.Typer` with
commands of its own. Its help is the docstring, or HELP where that is long. Commands import what they need when called,
so that help and lists come at once.
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
    "compare-revisions", "show", "dashboard", "compare", "judge-change", "bisect", "runs", "resume", "report", "judge",
    "agree", "baseline", "history", "export", "publish", "index", "combine", "new", "check", "claims", "variants",
    "workloads", "count", "doctor", "calibrate", "sessions", "speedscope",
)  # fmt: skip
"""The order of the help: what most people do comes first. What is not named here comes behind."""

HELP = """\
Measure whether a change to Python code or a Llama model makes it faster.

To time two functions, variants or commands, run pytest; this command does the rest:

\b
  pytest --benchmark --compare old.py:f new.py:f --call bench.py:texts
  pytest --benchmark                       the claims that ship with the workbench

\b
Most used (m:f is a function, module:name or file.py:name):
  workbench compare-revisions main . m:f   is m:f slower now? (--call FILE:FUNCTION generates its inputs)
  workbench show results/runs/ID           a comparison on one screen: which is faster, by how much, and where
  workbench dashboard                      the newest run in a browser, with all details
  workbench compare BASE NEW               has anything become slower since a saved run? (for CI)
  workbench judge-change m:f --call b:gen  is my change faster, and still right? JSON, for programs
  workbench bisect v1.2 main m:f           which commit made it slower?

\b
Runs:
  workbench runs                           list the runs on this disk
  workbench resume results/runs/ID         continue a run that was cut off, or has inconclusive verdicts
  workbench report results/runs/ID         its answer as Markdown
  workbench report RUN --claim ID --html F one claim as a page to share
  workbench judge results/runs/ID          compute its verdicts again, even if it was killed
  workbench agree RUN RUN                  do two runs of the same command agree?
  workbench baseline save RUN main         save a run to compare with later
  workbench history                        at which commit did a time change?
  workbench export results/runs/ID         its times, for a service that plots them over commits
  workbench publish RUN s3://bucket/runs/ID copy a run to where others read it
  workbench index s3://bucket/runs         rebuild the list of the runs there
  workbench combine RUN RUN                runs of several machines: what holds on each of them?

\b
Variants, claims and workloads:
  workbench new variant build_mine         write a first version to edit
  workbench check build_mine.py            are its outputs right, and if not, why?
  workbench claims                         list what is claimed, and by whom
  workbench variants team006_after         show one variant, choice by choice
  workbench workloads                      list what models are timed on
  workbench count BASE NEW                 how many instructions does a call of each execute?

\b
This machine:
  workbench doctor                         is it fit to measure?
  workbench calibrate                      how often are verdicts wrong on it?
  workbench sessions RUN RUN RUN           how much do runs of unchanged code differ on it?
  workbench speedscope                     install the viewer for raw profiles

\b
`workbench COMMAND --help` says more. Exit codes, as far as a command has them:
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
        command = getattr(getattr(error, "ctx", None), "command_path", "workbench")
        return [f"{_one_line(usage())} (see {command} --help)"]
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
