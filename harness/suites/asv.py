"""Benchmarks of asv as tests of a suite: what asv.conf.json names as their folder, its classes and functions."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

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
