"""What a project's own settings say of its tests, and would disturb measuring: it is left out of a session that
measures, and said. What was typed in the command itself is never left out: it is refused, or meant."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

PLUGINS = {"xdist": "pytest-xdist", "cov": "pytest-cov"}
"""Plugins whose options are left out, by the group that these have: workers compute beside what is measured, tracing
slows it down, and a threshold of theirs must not pass for a verdict."""

FOR_TESTS = ("keyword", "markexpr", "maxfail", "lf", "failedfirst", "newfirst", "stepwise", "deselect")
"""Options that choose among tests, or end a session early: they were meant for the project's tests."""

TIMEOUT = "timeout"
"""Of pytest-timeout: a test that measures takes as long as its budget."""


class LeftOut:
    """What a session that measures leaves out. values: option → its value here; line: what is said of it."""

    def __init__(self, values: Mapping[str, Any], line: str) -> None:
        self.values, self.line = values, line

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        """Take it out before any plugin acts on its options."""
        for destination, value in self.values.items():
            setattr(config.option, destination, value)
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.line:
            terminalreporter.write_line(f"workbench: {self.line}")


def leave_out(config: pytest.Config, parser: pytest.Parser, typed_words: Sequence[str]) -> None:
    """Find what the project's settings ask for and this session must not do, and keep it from plugins that look early.

    typed_words: the command's own, in full. Raises UsageError where such a thing was typed.
    """
    usual, given = config.option, config.known_args_namespace
    try:
        typed = parser.parse_known_args(list(typed_words), namespace=copy.copy(usual))
    except pytest.UsageError:  # the words are read again, and then it is said
        return
    left_out: dict[str, Any] = {}
    parts = []
    for plugin, name, destination in _disturbing(parser):
        value, otherwise = getattr(given, destination, None), getattr(usual, destination, None)
        if value == otherwise or destination in left_out:
            continue
        if getattr(typed, destination, None) != otherwise:
            if plugin == "pytest-cov":
                raise pytest.UsageError(
                    f"--benchmark: leave out {name} ({plugin}): tracing slows what is measured down"
                )
            continue
        left_out[destination] = otherwise
        parts.append(_as_typed(name, value))
    if hasattr(usual, TIMEOUT) and getattr(typed, TIMEOUT) is None:
        left_out[TIMEOUT] = 0
        if seconds := getattr(given, TIMEOUT) or os.environ.get("PYTEST_TIMEOUT") or config.getini(TIMEOUT):
            parts.append(f"timeout = {seconds}")
    for destination, value in left_out.items():
        setattr(given, destination, value)
    line = f"{_whose(config)}: {' '.join(parts)}: left out while measuring" if parts else ""
    config.pluginmanager.register(LeftOut(left_out, line))


def _disturbing(parser: pytest.Parser) -> Iterator[tuple[str, str, str]]:
    """Plugin (empty: pytest itself), a name and the destination of each option that may be left out."""
    for group in parser._groups:
        for option in group.options:
            if group.name in PLUGINS or option.dest in FOR_TESTS:
                yield PLUGINS.get(group.name, ""), _name(option.names(), option.dest), option.dest


def _as_typed(name: str, value: object) -> str:
    values = value if isinstance(value, list) else [value]
    between = " " if len(name) == 2 else "="
    return " ".join(name if each is True else f"{name}{between}{shlex.quote(str(each))}" for each in values)


def _name(names: Sequence[str], destination: str) -> str:
    """The one by which people know an option; -x is --maxfail=1."""
    return "--maxfail" if destination == "maxfail" else names[0]


def _whose(config: pytest.Config) -> str:
    """Where the settings stand."""
    places = [f"addopts of {config.inipath.name}"] if config.inipath and config.getini("addopts") else []
    places += ["PYTEST_ADDOPTS"] if os.environ.get("PYTEST_ADDOPTS") else []
    return " and ".join(places) or "the project's settings"


# Benchmarks of asv as tests of a suite: what asv.conf.json names as their folder, its classes and functions.


PLUGIN = "llama_workbench suite"
"""The name under which the plugin is known that times the calls of this process."""

TIMED = re.compile(r"time_.|Time[A-Z_].")
OTHER = re.compile(r"(timeraw|mem|peakmem|track)_.|(Timeraw|Mem|PeakMem|Track)[A-Z_].")
"""Names of benchmarks: those that are timed, and those of what is not."""

MADE = pytest.StashKey[dict[Any, tuple[str, Any]]]()
"""What `setup_cache` of each class or module has made in this process, and its folder."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@cache
def folder_of_benchmarks(folder: Path) -> Path | None:
    """What the next asv.conf.json, here or above, names as the folder of its benchmarks; it is JSON with comments."""
    file = folder / "asv.conf.json"
    if file.is_file():
        text = file.read_text(encoding="utf-8")
        named = re.search(r'^(?!\s*//).*"benchmark_dir"\s*:\s*"([^"]+)"', text, re.MULTILINE)
        return (folder / (named[1] if named else "benchmarks")).resolve()
    return folder_of_benchmarks(folder.parent) if folder != folder.parent else None


class AsvModules:
    """Lets pytest collect them."""

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if file_path.suffix != ".py" or file_path.name == "__init__.py":
            return None
        folder = folder_of_benchmarks(file_path.parent)
        if folder is None or not file_path.resolve().is_relative_to(folder):
            return None
        return AsvModule.from_parent(parent, path=file_path)


class AsvModule(pytest.Module):
    """A file of benchmarks."""

    def collect(self) -> Iterator[pytest.Item]:
        for name, value in vars(self.obj).items():
            if name.startswith("_"):
                continue
            if inspect.isclass(value) and not inspect.isabstract(value):
                for method, function in inspect.getmembers(value, inspect.isfunction):
                    yield from self._benchmarks(f"{name}.{method}", value, function)
            elif inspect.isfunction(value):
                yield from self._benchmarks(name, None, value)

    def _benchmarks(self, name: str, owner: type | None, function: Callable[..., Any]) -> Iterator[pytest.Item]:
        """One for each combination of its parameters."""
        last = name.rpartition(".")[2]
        if not (TIMED.match(last) or OTHER.match(last)):
            return
        sources = [each for each in (function, owner, self.obj) if each is not None]
        params, names = ([*first(sources, what, ())] for what in ("params", "param_names"))
        if params and not isinstance(params[0], (list, tuple)):
            params = [params]
        taken: set[str] = set()
        for values in itertools.product(*params):
            shown = [ADDRESS.sub("", repr(each)) for each in values]
            labelled = [
                f"{label}={text}" for label, text in itertools.zip_longest(names[: len(shown)], shown, fillvalue="")
            ]
            full = f"{name}[{', '.join(text.removeprefix('=') for text in labelled)}]" if values else name
            full += f" {len(taken)}" * (full in taken)  # two objects that look alike
            taken.add(full)
            yield AsvBenchmark.from_parent(self, name=full, owner=owner, function=function, values=values)


class AsvBenchmark(pytest.Item):
    """A benchmark with its parameters. owner: its class."""

    funcargs: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self, *, owner: type | None, function: Callable[..., Any], values: Sequence[Any], **given: Any
    ) -> None:
        super().__init__(**given)
        self.owner, self.function, self.values = owner, function, tuple(values)

    def runtest(self) -> None:
        """Time it as asv does: in a folder of its own, with what `setup_cache` made, between `setup` and `teardown`."""
        name = self.function.__name__
        if not TIMED.match(name):
            pytest.skip(f"not timed: {name.partition('_')[0]} is another quantity")
        owner = self.owner() if self.owner is not None else None
        sources = [self.function if owner is None else getattr(owner, name), owner, self.parent.obj]  # type: ignore[union-attr]
        sources = [each for each in sources if each is not None]
        if first(sources, "skip_benchmark", False) or self.values in map(tuple, first(sources, "skip_params", ())):
            pytest.skip("asv skips it")
        before, number = Path.cwd(), first(sources, "number", 0)
        measuring: Any = self.config.pluginmanager.get_plugin(PLUGIN).measuring  # type: ignore[union-attr]
        try:
            cached = self._cached(sources)
            given = (*([] if cached is None else [copy.deepcopy(cached)]), *self.values)
            set_up, tear_down = (
                [made for each in sources if (made := method(each, what))] for what in ("setup", "teardown")
            )

            def arguments() -> tuple[Sequence[Any], dict[str, Any]]:
                for call in reversed(set_up):
                    call(*given)
                return given, {}

            def teardown(*given: Any) -> None:
                for call in tear_down:
                    call(*given)

            if number and set_up:  # asv sets up before so many calls
                measuring.timed_one_by_one(sources[0], arguments, teardown, number)
                return
            arguments()
            try:
                measuring.timed(sources[0], given, {})
            finally:
                teardown(*given)
        except NotImplementedError as error:
            pytest.skip(f"not for these parameters: NotImplementedError {error}")
        finally:
            os.chdir(before)

    def _cached(self, sources: Sequence[Any]) -> Any:
        """What `setup_cache` has made, once in a process, in the folder in which the benchmark runs."""
        make = first(sources, "setup_cache", None)
        kept = self.config.stash.setdefault(MADE, {})
        key = getattr(make, "__func__", make) or self.parent
        if key not in kept:
            files = Path(self.config.option.basetemp or tempfile.gettempdir())
            files.mkdir(parents=True, exist_ok=True)
            folder = tempfile.mkdtemp(prefix="asv-", dir=files)
            os.chdir(folder)
            kept[key] = folder, make() if make is not None else None
        folder, cached = kept[key]
        os.chdir(folder)
        return cached


def first(sources: Sequence[Any], name: str, otherwise: Any) -> Any:
    """The attribute of the first of these that has it."""
    return next((getattr(each, name) for each in sources if hasattr(each, name)), otherwise)


def method(source: Any, name: str) -> Callable[..., Any] | None:
    """Its function of that name, in any case: setUp is one too."""
    return next((getattr(source, each) for each in dir(source) if each.lower() == name), None)
