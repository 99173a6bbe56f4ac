"""Suites of pytest-benchmark and pytest-codspeed, unchanged: real processes of pytest, few of them."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from llama_workbench.harness.machine.environment import child_environment
from llama_workbench.harness.spec.sample import Round
from llama_workbench.harness.stats.confidence import LookPlan, first_interval
from llama_workbench.harness.suites.others import folder_of_benchmarks
from llama_workbench.harness.suites.run import Checkout, Pairs, Places, is_suite, processes_needed
from tests.session.test_revisions import code_of, git
from tests.unchanged import SESSIONS

pytestmark = pytest.mark.covers(*SESSIONS)

SETTINGS = """
[pytest]
pythonpath = src
filterwarnings =
    error
markers =
    slow: takes long
addopts = -n 2 --cov=mine --strict-markers -x -k nothing --benchmark-only --benchmark-autosave -ra
"""

MINE = """
def total(numbers):
    return sum(numbers)


def value():
    return 1
"""

CONFTEST = """
import pathlib
import pytest

COUNTS = pathlib.Path(__file__).with_name("counts")


def made(scope):
    with COUNTS.open("a") as file:
        file.write(scope + " ")


@pytest.fixture(scope="session")
def of_session():
    made("session")
    yield list(range(100))
    made("session-ended")


@pytest.fixture(scope="module")
def of_module(of_session):
    made("module")
    return of_session


@pytest.fixture
def of_function(of_module):
    made("function")
    return of_module


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""

TESTS = """
import os
import time
import warnings

import mine
import pytest


def test_scopes(benchmark, of_function):
    assert benchmark(mine.total, of_function) == 4950


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.benchmark(group="sums", min_rounds=3)
def test_sum(benchmark, n, of_function):
    assert benchmark(mine.total, numbers=range(n)) == n * (n - 1) // 2
    assert benchmark.params == {"n": n} and benchmark.enabled


class TestPedantic:
    def test_setup(self, benchmark):
        seen = []

        def setup():
            time.sleep(0.002)
            seen.append("setup")
            return ([3, 1, 2],), {}

        def sort(values):
            assert values == [3, 1, 2]
            values.sort()
            return values

        def teardown(values):
            assert values == [1, 2, 3]
            seen.append("teardown")

        assert benchmark.pedantic(sort, setup=setup, teardown=teardown, rounds=5) == [1, 2, 3]
        assert seen[::2] == ["setup"] * (len(seen) // 2) and seen[1::2] == ["teardown"] * (len(seen) // 2)

    def test_plain(self, benchmark):
        assert benchmark.pedantic(sum, args=([1, 2],), rounds=10, iterations=100) == 3

    def test_together(self, benchmark):
        calls, ends = [], [0]
        benchmark.pedantic(calls.append, args=(1,), teardown=lambda each: ends.append(len(calls)), iterations=4)
        assert {after - before for before, after in zip(ends, ends[1:])} <= {1, 2, 3, 4}
        assert 4 * (len(ends) - 1) < 2 * len(calls) and ends[-1] == len(calls)


@pytest.mark.benchmark(group="sums")
def test_tells(benchmark):
    benchmark.group = f"{benchmark.group}-100"
    benchmark.extra_info.update(size=100, kind=int)
    benchmark(sum, range(100))
    assert 0 < benchmark.stats["min"] <= benchmark.stats.stats.mean <= benchmark.stats["max"] < 0.1
    assert benchmark.stats["rounds"] == len(benchmark.stats.stats.data) >= 1


def test_too_slow(benchmark):
    benchmark(time.sleep, 0.003)
    assert benchmark.stats["mean"] < 0.001


def test_decorated(benchmark):
    @benchmark
    def answer():
        return sum(range(100))

    assert answer == 4950


@pytest.mark.benchmark
def test_marked(of_session):
    assert sum(of_session * 50) == 247500


@pytest.mark.benchmark
@pytest.mark.anyio
async def test_awaited(of_session):
    assert sum(of_session) == 4950


def test_waits(benchmark):
    benchmark(time.sleep, 0.003)


def test_value(benchmark):
    assert benchmark(mine.value) == 1


def test_raises_late(benchmark):
    calls = iter(range(20))
    benchmark(lambda: next(calls))


def test_twice(benchmark):
    benchmark(sum, [1])
    benchmark(sum, [2])


def test_untimed(benchmark):
    pass


def test_skipped(benchmark):
    pytest.skip("not today")


def test_no_benchmark():
    raise AssertionError("it is not asked for")
"""


def write(folder: Path) -> Path:
    """A project with a suite."""
    (folder / "src").mkdir(parents=True)
    (folder / "bench").mkdir()
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "src" / "mine.py").write_text(MINE)
    (folder / "bench" / "conftest.py").write_text(CONFTEST)
    (folder / "bench" / "test_mine.py").write_text(TESTS)
    return folder


def driver(*folders: Path, tests: str = "bench") -> Pairs:
    sides = [Checkout(folder.name, folder, folder, (tests,)) for folder in folders]
    return Pairs(sides, 1)


def places(tmp_path: Path) -> Places:
    (scratch := tmp_path / "scratch").mkdir(exist_ok=True)
    return Places(scratch, scratch, scratch)


def one_pair(driver: Pairs, tmp_path: Path) -> dict[str, Round]:
    """The rounds of one pair of processes."""
    with driver.processes(places(tmp_path)) as processes:
        driver.take([test for test, sides in driver.collected.tests.items() if len(sides) == len(driver.sides)])
        found = driver.rounds(processes, driver.open(1))
        return {test.partition("::")[2]: finished for test, finished in found if finished is not None}


def call_ns(finished: Round, side: str) -> float:
    return statistics.median(each.wall_ns / each.repeats for each in finished.samples if each.variant == side)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pairs, dict[str, Round], Path]:
    """One pair of processes of a suite whose new side is broken in places."""
    folder = tmp_path_factory.mktemp("suites")
    old, new = write(folder / "old"), folder / "new"
    shutil.copytree(old, new)
    (new / "src" / "mine.py").write_text(MINE.replace("return 1", "return 2"))
    tests = new / "bench" / "test_mine.py"
    tests.write_text(TESTS.replace("def test_decorated", "def test_renamed"))
    (old / "bench" / "test_old.py").write_text("import gone\n")
    pairs = driver(old, new)
    return pairs, one_pair(pairs, folder), folder


def test_all_ways_to_time_a_call_have_samples_of_both_sides_in_turns(
    pair: tuple[Pairs, dict[str, Round], Path],
) -> None:
    _, rounds, _ = pair
    assert rounds.keys() == {
        "test_scopes", "test_sum[10]", "test_sum[1000]", "TestPedantic::test_setup", "TestPedantic::test_plain",
        "TestPedantic::test_together", "test_marked", "test_awaited", "test_waits", "test_tells",
    }  # fmt: skip
    for finished in rounds.values():
        by_side = {each.variant: 0 for each in finished.samples}
        for each in finished.samples:
            by_side[each.variant] += 1
        assert by_side.keys() == {"old", "new", "function_yardstick"} and by_side["function_yardstick"] == 1
        assert by_side["old"] == by_side["new"] >= 1
        assert len({each.repeats for each in finished.samples if each.variant in ("old", "new")}) == 1
        assert finished.process == 1


def test_what_comes_before_and_after_a_call_is_not_timed(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    _, rounds, _ = pair
    assert call_ns(rounds["TestPedantic::test_setup"], "old") < 500_000 < call_ns(rounds["test_waits"], "old")
    assert call_ns(rounds["test_marked"], "new") > 10_000


def test_what_a_test_says_of_itself_comes_with_its_number(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    tests = {test.partition("::")[2]: known for test, known in pair[0].tests.items()}
    assert (tests["test_tells"].group, tests["test_sum[10]"].group, tests["test_waits"].group) == (
        "sums-100",
        "sums",
        None,
    )
    assert tests["test_tells"].extra == {"size": 100, "kind": "<class 'int'>"}


def test_an_assertion_about_time_sees_the_samples_and_is_named_where_it_fails(
    pair: tuple[Pairs, dict[str, Round], Path],
) -> None:
    tests = {test.partition("::")[2]: known for test, known in pair[0].tests.items()}
    assert all("< 0.001" in why and "assert 0.0" in why for why in tests["test_too_slow"].left_out.values())
    assert tests["test_too_slow"].left_out.keys() & {"old", "new"}


def test_what_waits_is_timed_by_the_wall_clock_alone(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    tests = {test.partition("::")[2]: known for test, known in pair[0].tests.items()}
    assert tests["test_waits"].waits > 10
    assert tests["test_sum[1000]"].waits == 1


def test_what_fails_is_named_and_has_no_number(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    tests = {test.partition("::")[2]: known for test, known in pair[0].tests.items()}
    assert tests["test_value"].left_out.keys() == {"new"}
    assert "assert 2 == 1" in tests["test_value"].left_out["new"]
    assert "StopIteration" in str(tests["test_raises_late"].left_out)
    assert "can be used once" in str(tests["test_twice"].left_out)
    skipped = {test.partition("::")[2]: sides for test, sides in pair[0].collected.skipped.items()}
    assert skipped.keys() == {"test_untimed", "test_skipped"}
    assert "times no call" in skipped["test_untimed"]["old"] and "not today" in skipped["test_skipped"]["new"]


def test_what_one_side_lacks_is_known_and_what_cannot_be_collected_is_said(
    pair: tuple[Pairs, dict[str, Round], Path],
) -> None:
    found = pair[0].collected
    alone = {test.partition("::")[2]: sides for test, sides in found.tests.items() if len(sides) == 1}
    assert alone == {"test_decorated": ["old"], "test_renamed": ["new"]}
    [((side, where), text)] = found.errors.items()
    assert (side, where) == ("old", "bench/test_old.py") and "No module named 'gone'" in text
    assert len({*found.files["bench/test_mine.py"].values()}) == 2


def test_settings_that_disturb_are_left_out_and_said(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    [line] = pair[0].collected.left_out
    assert all(word in line for word in ("-n 2", "--cov=mine", "-k nothing", "--maxfail"))
    assert not [*pair[2].glob("*/.benchmarks"), *pair[2].glob("*/.pytest_cache"), *pair[2].glob("*/.coverage*")]


def test_fixtures_are_made_as_often_as_their_scope_says(pair: tuple[Pairs, dict[str, Round], Path]) -> None:
    counts = (pair[2] / "old" / "bench" / "counts").read_text().split()
    assert [counts.count(scope) for scope in ("session", "module", "function")] == [1, 1, 3]
    assert counts[-1] == "session-ended"


def test_a_test_that_ends_its_process_is_named_and_the_next_pair_goes_on_without_it(tmp_path: Path) -> None:
    folder = tmp_path / "side"
    folder.mkdir()
    (folder / "test_it.py").write_text(
        "import os\n\ndef test_ends(benchmark):\n    benchmark(os._exit, 3)\n\n"
        "def test_sum(benchmark):\n    assert benchmark(sum, [1]) == 1\n"
    )
    pairs = driver(folder, tests="test_it.py")
    rounds = one_pair(pairs, tmp_path)
    with pairs.processes(places(tmp_path)) as processes:
        for test, finished in pairs.rounds(processes, pairs.open(1 + ("test_sum" in rounds))):
            assert (test, finished is not None) == ("test_it.py::test_sum", True)
    assert "exit code 3" in pairs.tests["test_it.py::test_ends"].left_out["side"]


ASYNCIO = """
import asyncio
import pytest
import pytest_asyncio

@pytest_asyncio.fixture
async def number():
    await asyncio.sleep(0)
    return 5

@pytest.mark.codspeed_benchmark
@pytest.mark.asyncio
async def test_awaited(number):
    await asyncio.sleep(0.003)
    assert number == 5
"""


def test_an_async_test_of_pytest_asyncio_is_timed_with_what_it_awaits(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio")
    (folder := tmp_path / "side").mkdir()
    (folder / "test_it.py").write_text(ASYNCIO)
    pairs = driver(folder, tests="test_it.py")
    rounds = one_pair(pairs, tmp_path)
    assert not pairs.tests["test_it.py::test_awaited"].left_out
    assert 3e6 < call_ns(rounds["test_awaited"], "side") < 20e6


ASV = """
import os
import time

CALLS = []


def setup(*values):
    CALLS.append(("module", values))


class Suite:
    params = [[10, 1000], ["a", "b"]]
    param_names = ["n", "kind"]

    def setup_cache(self):
        time.sleep(0.05)
        open("made", "w").close()
        return list(range(1000))

    def setup(self, numbers, n, kind):
        if kind == "b" and n == 10:
            raise NotImplementedError
        assert len(numbers) == 1000 and os.path.exists("made")
        self.numbers = numbers[:n]
        numbers.clear()
        CALLS.append("set up")

    def teardown(self, numbers, n, kind):
        CALLS.append("teardown")

    def time_sum(self, numbers, n, kind):
        sum(self.numbers)

    def time_only_a(self, numbers, n, kind):
        if (n, kind) != (10, "a"):
            raise NotImplementedError("only a")

    def peakmem_sum(self, numbers, n, kind):
        return self.numbers


class TimeOnce:
    number = 1

    def setup(self):
        time.sleep(0.002)
        self.left = [3]

    def time_pop(self):
        self.left.pop()

    def track_left(self):
        return 1


def time_waits(seconds):
    assert CALLS.count("teardown") == CALLS.count("set up"), "once a benchmark, also of those that raise"
    time.sleep(seconds)


time_waits.params = [0.003]


def time_wrong():
    raise ValueError("no")


def helper():
    raise AssertionError("it is no benchmark")
"""


def test_benchmarks_of_asv_are_measured_as_they_are(tmp_path: Path) -> None:
    side = tmp_path / "side"
    (side / "perf").mkdir(parents=True)
    (side / "pytest.ini").write_text("[pytest]\n")
    (side / "asv.conf.json").write_text('{\n  // comment\n  "version": 1,\n  "benchmark_dir": "perf",\n}\n')
    (side / "perf" / "__init__.py").write_text("")
    (side / "perf" / "common.py").write_text("SIZE = 1\n")
    (side / "perf" / "bench_it.py").write_text("from .common import SIZE\n" + ASV)
    pairs = driver(side, tests="perf")
    rounds = one_pair(pairs, tmp_path)
    assert not pairs.collected.errors
    assert rounds.keys() == {
        "Suite.time_sum[n=10, kind='a']", "Suite.time_sum[n=1000, kind='a']", "Suite.time_sum[n=1000, kind='b']",
        "Suite.time_only_a[n=10, kind='a']", "TimeOnce.time_pop", "time_waits[0.003]",
    }  # fmt: skip
    small, large = (call_ns(rounds[f"Suite.time_sum[n={n}, kind='a']"], "side") for n in (10, 1000))
    assert small < large
    assert call_ns(rounds["TimeOnce.time_pop"], "side") < 500_000 < 3e6 < call_ns(rounds["time_waits[0.003]"], "side")
    assert "ValueError: no" in pairs.tests["perf/bench_it.py::time_wrong"].left_out["side"]
    why = {test.partition("::")[2]: sides["side"] for test, sides in pairs.collected.skipped.items()}
    assert why["TimeOnce.track_left"] == "not timed: track is another quantity"
    assert "NotImplementedError" in why["Suite.time_sum[n=10, kind='b']"]
    assert why["Suite.time_only_a[n=1000, kind='a']"].endswith("only a")
    assert len(why) == 1 + 1 + 3 + 4  # of peakmem_sum one for each combination
    assert Path.cwd() != tmp_path and not [*side.rglob("made")]


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ('{\n  // "benchmark_dir": "gone",\n  "benchmark_dir": "perf"\n}', "perf"),
        ('{"repo": "https://example.org/it", "benchmark_dir": "perf"}', "perf"),
        ("{}", "benchmarks"),
    ],
)
def test_the_folder_of_asv_is_the_one_that_its_settings_name(tmp_path: Path, text: str, folder: str) -> None:
    (tmp_path / "asv.conf.json").write_text(text)
    assert folder_of_benchmarks(tmp_path / "within") == (tmp_path / folder).resolve()


def test_a_test_of_too_long_calls_is_measured_only_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_workbench.harness.suites.run.TOO_LONG_NS", 200_000_000)
    (folder := tmp_path / "side").mkdir()
    code = "import time\n\ndef test_long(benchmark):\n    benchmark(time.sleep, 0.4)\n\n"
    (folder / "test_it.py").write_text(f"{code}def test_sum(benchmark):\n    benchmark(sum, [1])\n")
    pairs = driver(folder, tests="test_it.py")
    assert one_pair(pairs, tmp_path).keys() == {"test_sum"}
    [(test, why)] = pairs.collected.skipped.items()
    assert test == "test_it.py::test_long"
    assert re.fullmatch(r"a call takes [\d.]+ s: measure this test by itself", why["side"])
    assert pairs.open(2) == ["test_it.py::test_sum"]
    alone = driver(folder, tests="test_it.py::test_long")
    [finished] = one_pair(alone, tmp_path).values()
    assert [each.repeats for each in finished.samples if each.variant == "side"] == [1]


@pytest.mark.parametrize("tests", [1, 15, 50, 500])
def test_so_many_processes_give_an_interval_for_each_test(tests: int) -> None:
    least = processes_needed(tests, 0.01)
    assert 12 <= least <= 24
    assert first_interval(LookPlan(0.01 / tests, least, one_sided=True)) <= least


@pytest.mark.parametrize(
    ("subject", "suite"),
    [
        ("tests/bench", True),
        ("bench.py", True),
        ("bench.py::test_a[a:b]", True),
        ("bench.py:f", False),
        ("m.n:f", False),
    ],
)
def test_a_path_is_a_suite_and_a_path_with_a_function_is_none(subject: str, suite: bool) -> None:
    assert is_suite(subject) == suite


# -- commands ----------------------------------------------------------------------------------------------------------

SHORT = """
import mine
import pytest

NUMBERS = list(range(2000))


def test_total(benchmark):
    benchmark.group, benchmark.extra_info["size"] = "whole", len(NUMBERS)
    assert benchmark(mine.total, NUMBERS) == 1999000


@pytest.mark.benchmark
def test_sorted():
    sorted(NUMBERS * 5)


def test_gone(benchmark):
    benchmark(mine.value)
"""


def command(folder: Path, *words: str, module: str = "llama_workbench.commands.app") -> tuple[int, str]:
    environment = {name: value for name, value in child_environment().items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout or done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose working tree is slower in one test, and lacks another."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "src").mkdir()
    (folder / "pytest.ini").write_text(SETTINGS.replace("--benchmark-only ", ""))
    (folder / ".gitignore").write_text("results/\n")
    (folder / "src" / "mine.py").write_text(MINE)
    (folder / "test_mine.py").write_text(SHORT)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    (folder / "src" / "mine.py").write_text(MINE.replace("sum(numbers)", "sum([number for number in numbers])"))
    (folder / "test_mine.py").write_text(SHORT.replace("def test_gone", "def test_new"))
    return folder


@pytest.mark.covers("harness", "llama_workbench")
def test_two_revisions_of_a_suite_have_a_verdict_by_test_id(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = command(project, "compare-revisions", "main", ".", "test_mine.py", "--budget", "1", "--json")
    assert code == 1, text
    answer = json.loads(text)
    rows = {row["subject"].partition("::")[2]: row for row in answer["rows"]}
    assert rows["test_total"]["verdict"] == "slower" and 1 > 1 / 1.2 > rows["test_total"]["high"]
    assert rows["test_sorted"]["verdict"] != "slower"
    assert (rows["test_gone"]["reason"], rows["test_new"]["reason"]) == ("only in suite-main", "only in suite-now")
    assert {row["verdict"] for name, row in rows.items() if name in ("test_gone", "test_new")} == {"missing"}
    run = rows["test_total"]["run"]
    monkeypatch.chdir(project)
    assert code_of("show", run) == 0 and "test_mine.py::test_total" in capsys.readouterr().out
    assert code_of("judge", run) == 0 and "suite-now" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--call", "mine.py:value"), ("--gate", "time,instructions"), ("mine:value",)])
def test_options_of_functions_are_refused(
    project: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert code_of("compare-revisions", "main", ".", "test_mine.py", *words) == 2
    text = capsys.readouterr().err
    assert words[0] in text and "not with a suite of tests: test_mine.py" in text


@pytest.mark.covers("harness", "llama_workbench")
def test_a_session_measures_its_benchmarks_in_processes_saves_a_run_and_passes(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of them are compared by pytest-benchmark as ever."""
    ours = ("-p", "llama_workbench.harness.plugin.plugin") if "llama_workbench" not in _plugins() else ()
    words = (*ours, "--benchmark", "--budget", "1", "-W", "ignore:Module already imported")
    kept = ("--benchmark-storage=kept", "--benchmark-save=first", "--benchmark-json", "table.json")
    code, text = command(project, *words, "test_mine.py", "--run-dir", "saved", *kept, module="pytest")
    assert code == 0, text
    assert "3 passed" in text and "workbench: suite" in text and "workbench compare saved NEW" in text
    table = json.loads((project / "table.json").read_text())
    assert {each["name"]: each["stats"]["rounds"] for each in table["benchmarks"]} == {"test_total": 12, "test_new": 12}
    assert {each["name"]: (each["group"], each["extra_info"]) for each in table["benchmarks"]} == {
        "test_total": ("whole", {"size": 2000}),
        "test_new": (None, {}),
    }

    compared = (kept[0], "--benchmark-compare=0001", "--benchmark-compare-fail=mean:1000%")
    code, text = command(project, *words, "test_mine.py::test_total", *compared, module="pytest")
    assert "test_total (NOW)" in text and "test_total (0001_first)" in text
    assert code == 0, text

    code, text = command(project, *words, "--continue", "saved", module="pytest")
    assert code == 4 and "a suite of benchmarks is always measured whole" in text

    monkeypatch.chdir(project)
    assert code_of("show", "saved") == 0 and "test_mine.py::test_sorted" in capsys.readouterr().out
    code_of("compare", "saved", "saved", "--json")
    rows = {row["workload"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows.keys() == {f"test_mine.py::test_{name}" for name in ("total", "sorted", "new")}
    assert all(row["against"] == "function_yardstick" and row["change_percent"] == 0 for row in rows.values())


def _plugins() -> Sequence[str]:
    from importlib.metadata import entry_points

    return [each.value.partition(".")[0] for each in entry_points(group="pytest11")]
