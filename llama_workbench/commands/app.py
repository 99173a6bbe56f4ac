"""The command line: its commands, its errors and its exit codes.

A module of this package has a command as `command`, a function whose parameters typer reads, or a `typer.Typer` with
commands of its own; LISTED is its line in `workbench --help`. Its help is the docstring.
Where it has several, COMMANDS has name → (function, its line). A slice has the same in its module `command`. Commands
import what they need when called, so that help and lists come at once.
"""

from __future__ import annotations

import errno
import math
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer

from llama_workbench.harness.machine import extras
from llama_workbench.harness.slices import faces
from llama_workbench.harness.spec.words import VerbExit

from .shared import MACHINE, MODELS, MOST_USED, ON_RUNS, Listed, OutputLost, write

GROUPS = (MOST_USED, ON_RUNS, MODELS, MACHINE)

HELP = """\
Measure whether a change to Python code or a Llama model makes it faster.

To time two functions, variants or commands, run pytest; this command does the rest:

\b
  pytest --benchmark --compare old.py:f new.py:f --call bench.py:texts
  pytest --benchmark                       the claims that ship with the workbench
"""
ENDING = """\
\b
`workbench COMMAND --help` says more. Exit codes, as far as a command has them:
"""


class Verb(NamedTuple):
    """A command: the function whose parameters typer reads, or a Typer with commands of its own; its line in `workbench
    --help`; and the module that has it."""

    run: Any
    listed: Listed | None
    module: str


def verbs() -> dict[str, Verb]:
    """The commands of the modules beside this one, and of the `command` modules of slices, by verb, in the order of the
    help."""
    folder = import_module(__package__).__path__
    modules = [import_module(f"{__package__}.{entry.name}") for entry in pkgutil.iter_modules(folder)]
    by_name: dict[str, Verb] = {}
    for module in [*modules, *faces("command")]:
        if hasattr(module, "command"):  # called as it says, or as its file, or the folder of its slice
            name = getattr(module, "VERB", module.__name__.removesuffix(".command").rpartition(".")[2])
            own = {name.replace("_", "-"): (module.command, getattr(module, "LISTED", None))}
        else:
            own = getattr(module, "COMMANDS", {})
        by_name |= {name: Verb(run, listed, module.__name__) for name, (run, listed) in own.items()}
    return dict(
        sorted(by_name.items(), key=lambda item: (item[1].listed.place if item[1].listed else math.inf, item[0]))
    )


def help_text(all_listed: Sequence[Listed]) -> str:
    """What `workbench --help` prints above the list of commands: usages by group, then the exit codes."""
    lines = [HELP]
    for group in GROUPS:
        usages = [usage for listed in all_listed if listed.group == group for usage in listed.usages.items()]
        lines.append("\b\n" + "\n".join([f"{group}:", *(f"  workbench {usage:<30} {does}" for usage, does in usages)]))
        lines.append("")
    return "\n".join(lines) + "\n" + ENDING + VerbExit.listed() + "\n"


def build() -> typer.Typer:
    """The command with all its verbs."""
    known = verbs()
    app = typer.Typer(
        name="workbench",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=help_text([verb.listed for verb in known.values() if verb.listed]),
    )
    app.callback(invoke_without_command=True)(_start)
    for name, verb in known.items():
        if isinstance(verb.run, typer.Typer):
            app.add_typer(verb.run, name=name)
        else:
            app.command(name)(verb.run)
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


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"workbench: warning: {_one_line(message)}\n")


def _one_line(text: object) -> str:
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(text)).split())


if __name__ == "__main__":
    main()
