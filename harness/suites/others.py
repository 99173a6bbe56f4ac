"""What a project's own settings say of its tests, and would disturb measuring: it is left out of a session that
measures, and said. What was typed in the command itself is never left out: it is refused, or meant."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
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
