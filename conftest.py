"""For pytest in a checkout: the plugin, where the workbench is not installed, and what several tests share."""

from __future__ import annotations

import gc
import os
import sys
import tomllib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from llama_workbench.harness.calls.world import WorldTurn
    from tests.warm import Server


PLUGIN = "llama_workbench.harness.plugin.plugin"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Loads the plugin, unless an entry point of the same name has done so.

    Not `pytest_plugins`: that may stand in the conftest of the session's root only, and with an editable install
    `pytest --benchmark` in someone else's repository reaches this file as well.
    """
    parser.addoption(
        "--skip-unchanged",
        action="store_true",
        help="leave out tests marked `covers` that passed with the files as they are now (see tests/unchanged.py)",
    )
    if pluginmanager.has_plugin(PLUGIN):
        return
    pluginmanager.import_plugin(PLUGIN)
    if "--benchmark" in sys.argv:  # too late for the plugin to add them itself
        import_module(PLUGIN).add_short_names(parser)


def pytest_collection_finish() -> None:
    """What collecting imported, torch among it, lives as long as the session: garbage collections need not walk it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, then whole sessions, or the last worker would have it while the others have nothing
    left to do. Files stay whole: pytest-xdist gives them out as it finds them, and tests of a file share what they
    measured."""
    long, covers = ({item.path for item in items if item.get_closest_marker(name)} for name in ("long", "covers"))
    items.sort(key=lambda item: (item.path not in long, item.path not in covers))


@cache
def taken_away() -> str:
    """A part of the tree that has a budget of lines and is not there; empty where all are."""
    root = Path(__file__).parent
    budgets = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["lines"]
    parts = [name for name in budgets if name.startswith("harness/slices/")]
    return next((name for name in [*parts, "variants/engines"] if not (root / name).is_dir()), "")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture is made."""
    if item.get_closest_marker("whole") and (gone := taken_away()):
        pytest.skip(f"{gone} is taken away")
    if any(item.iter_markers("covers")):
        from tests import unchanged

        unchanged.leave_out(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if any(item.iter_markers("covers")):
        from tests import unchanged

        unchanged.note(item, report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same for what a file's tests left behind: garbage collections are part of every round, and late in a session
    each of them took longer than the test. A `Worker` made in this process switches gradients off, as in its own."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
        if torch := sys.modules.get("torch"):
            torch.set_grad_enabled(True)


@pytest.fixture(scope="session")
def warm_server() -> Iterator[Server]:
    """A process with torch imported, which forks those that tests measure in."""
    from tests import warm

    with warm.server() as server:
        yield server


@pytest.fixture(scope="module")
def warm(warm_server: Server) -> Iterator[None]:
    """Measuring processes of this module's tests are forked: see `tests.warm`."""
    from llama_workbench.harness.measure import processes

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "begin", warm_server.begin)
        yield


@pytest.fixture
def turn() -> Iterator[WorldTurn]:
    """Whose modules Python knows; after the test it knows those that it knew before."""
    from llama_workbench.harness.calls.world import modules_kept

    with modules_kept() as turn:
        yield turn


@dataclass(frozen=True)
class Said:
    """What a session of pytest came to."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def short_sessions() -> Iterator[None]:
    """See `tests.runs.short_sessions`."""
    from tests import runs

    with runs.short_sessions():
        yield


@pytest.fixture
def run_pytest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short_sessions: None
) -> Callable[..., Said]:
    """A session of pytest within this process, which starts at once."""
    monkeypatch.chdir(Path(__file__).parent)
    # What pytest-xdist tells its workers is not for a pytest of its own: pytest-benchmark would switch itself off.
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)

    def session(*words: str) -> Said:
        capsys.readouterr()
        code = pytest.main(["-p", "no:cacheprovider", *words])
        return Said(int(code), *capsys.readouterr())

    return session


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the system's Chromium, for tests that look at the dashboard in a real browser."""
    from tests.dashboard_browser import installed_chromium

    if path := installed_chromium():
        return path
    if os.environ.get("CI"):
        pytest.fail("CI must have Chromium: .ci/run installs it")
    pytest.skip("no Chromium on this machine: apt-get install chromium, or the like")
