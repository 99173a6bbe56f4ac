"""What several verbs share: options, finding runs, printing."""

from __future__ import annotations

import errno
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from llama_workbench.harness.plan.options import Option, every_option
from llama_workbench.harness.spec.words import VerbExit

from ..results import find_run

if TYPE_CHECKING:
    from llama_workbench.harness.calls.source import Source
    from llama_workbench.harness.store.folder import RunFolder

MOST_USED = "Most used (m:f is a function, module:name or file.py:name)"
ON_RUNS = "Runs"
MODELS = "Variants, claims and workloads"
MACHINE = "This machine"


@dataclass(frozen=True)
class Listed:
    """Where `workbench --help` lists a command: its place in the order, its group, and usage → what that does."""

    place: int
    group: str
    usages: Mapping[str, str]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run: its folder, its name under results/, or its URL.")
]


def takes(options: Mapping[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates the function of a verb: typer passes these options of `pytest --benchmark` as its `**given`, by their
    keys. options: name → what this verb says of it."""
    known = {option.name: option for option in every_option()}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = [_parameter(known[name], help_) for name, help_ in options.items()]
        command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in [*own, *more]}
        return command

    return decorated


def ends(more: Mapping[int, str], *, refuses: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates the function of a verb: its help has its exit codes below "Exit codes:", those that every verb has and
    more, as in `VerbExit.listed`. refuses: whether it leaves out wrong code, so that it has all of them."""
    codes: set[int] = {*VerbExit} if refuses else {VerbExit.DONE, VerbExit.COULD_NOT, VerbExit.INTERRUPTED, *more}
    lines = zip(VerbExit, VerbExit.listed(more).splitlines(), strict=True)
    listed = "\n".join(line for code, line in lines if code in codes)

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        head = "Exit codes:\n"
        command.__doc__ = inspect.cleandoc(command.__doc__ or "").replace(head, f"{head}{listed}\n")
        return command

    return decorated


def _parameter(option: Option, help_: str) -> inspect.Parameter:
    metavar = " ".join(option.metavar) if isinstance(option.metavar, tuple) else option.metavar
    words = typer.Option(*option.names(), metavar=metavar, help=help_)
    kind = option.typed if option.typed is bool else option.typed | None
    default = False if option.typed is bool else None
    return inspect.Parameter(
        option.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, words]
    )


class Failure(Exception):
    """Ends the command: one line on stderr, exit code 2."""


class OutputLost(Exception):
    """Standard output cannot be written to."""

    def __init__(self, number: int | None) -> None:
        self.errno = number or errno.EIO
        super().__init__(os.strerror(self.errno))


def sources_of(variants: Iterable[str | Source]) -> dict[str, Source]:
    """Name → source of variants from outside. Raises Failure, whose text names no option."""
    from llama_workbench.harness.plan.functions import added_sources
    from llama_workbench.harness.plan.options import PlanError
    from llama_workbench.variants.outside import OutsideVariantError

    try:
        return added_sources(variants)
    except (PlanError, OutsideVariantError) as error:
        raise Failure(str(error).removeprefix("--add-variant ")) from error


def run_of_one_machine(name: str) -> RunFolder:
    """A run by its name. Raises Failure for one of several machines, and RunError."""
    from llama_workbench.harness.store.verdict_schema import FLEET

    run = find_run(name)
    if run.manifest().mode == FLEET:
        raise Failure(f"{run.path}: a run of several machines; name one of the runs in {run.path}/machines")
    return run


def warn_changed(run: RunFolder, *, read: Collection[str], rewritten: Collection[str] = ()) -> None:
    """Warn of files of a run that differ from what the run wrote.

    `read`: files that the command reads anyway, which then fails. `rewritten`: files that the command replaces."""
    from llama_workbench.harness.store.files import RunWarning

    for error in run.changed(besides=read):
        replaced = error.path.name in rewritten
        text = f"{error.path}: {error.problem}. It is written again." if replaced else str(error)
        if error.path.name not in read:
            warnings.warn(text, RunWarning, stacklevel=2)


def table(*headings: str) -> Table:
    """An empty table without lines."""
    made = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    for index, heading in enumerate(headings):
        made.add_column(Text(heading), overflow="fold", no_wrap=index == 0 and len(headings) > 2)
    return made


def write_file(path: Path, text: str) -> None:
    """Write a report file, with the folder it lies in. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: cannot be written ({error.strerror})") from error


def show(content: RenderableType) -> None:
    """Print to the terminal. Raises OutputLost."""
    from llama_workbench.harness.report.terminal import console
    from llama_workbench.harness.report.terminal import show as show_on

    with _output():
        show_on(content, console())


def print_json(value: object) -> None:
    """Print as JSON, values of a file in its form. Raises OutputLost."""
    from llama_workbench.harness.store.forms import plain

    write(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")


def write(text: str) -> None:
    """Print as it is. Raises OutputLost."""
    with _output():
        sys.stdout.write(text)


@contextmanager
def _output() -> Iterator[None]:
    """Turns what happens to stdout into OutputLost: typer takes a broken pipe for an exit code of 1."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        raise OutputLost(error.errno) from error
