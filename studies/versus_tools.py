"""Other tools, as their users call them: does `new` differ from `old`? A tool is one function in `TOOLS`.

The tools of Python have an environment of their own, which is made once in the cache; hyperfine is the system's. Both
sides lie in a folder as `side_old.py` and `side_new.py`, each with a function `call` without arguments. Whatever a
tool is asked, it has so many seconds for both sides together, with what it needs to begin. What it says is read as its
users read it, in one or several ways (`Reading`); a share of 5 % is what most of them have as an example.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llama_workbench.cache import cache_directory
from llama_workbench.harness.calls.environments import interpreter_at
from llama_workbench.harness.slices.calibrate.known import KnownComparison

INSTALLED = (
    "pytest==9.2.0 pytest-benchmark==5.3.1 pytest-codspeed==5.0.4 pyperf==2.11.0 asv==0.6.6 virtualenv==21.15.11 "
    "numpy>=2"
)
"""What the environment of the tools is made of."""

SLOWER, FASTER, NOTHING = "slower", "faster", "nothing"
"""What a tool says of `new`: that it is slower or faster than `old`, or neither."""

START_SECONDS = 0.5
"""What beginning a Python process with the tool in it takes, about."""

LEVEL = 0.05
"""Of a test, where the tool has one."""

SHARE = 0.05
"""By so much a figure must be apart where the tool leaves it to its users."""


class ToolFailed(Exception):
    """A tool gave no answer; the text says why."""


@dataclass(frozen=True)
class Reading:
    """One way to read what a tool says. log_ratio: its estimate of log t_old - log t_new."""

    answer: str
    log_ratio: float


Readings = Mapping[str, Reading]
"""Rule → what it makes of the figures."""


@lru_cache
def interpreter() -> str:
    """That of the environment that has the tools. Raises SourceError where it cannot be made."""
    return interpreter_at(INSTALLED)


def ran(folder: Path, *command: str, fails: bool = False, **more: str) -> str:
    """What a command prints in a folder. fails: it may have an exit code. Raises ToolFailed."""
    environment = {"PATH": f"{Path(interpreter()).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)} | more
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not fails:
        raise ToolFailed(f"{command[0]}: {done.stdout[-500:]} {done.stderr[-500:]}".strip())
    return done.stdout + done.stderr


def python(folder: Path, *words: str, fails: bool = False, **more: str) -> str:
    """The same for a module or script of Python, where the tools are installed."""
    return ran(folder, interpreter(), *words, fails=fails, **more)


def apart(old: float, new: float, share: float = SHARE) -> Reading:
    """The answer of two times of which one must be larger by a share."""
    larger = SLOWER if new > old * (1 + share) else FASTER if old > new * (1 + share) else NOTHING
    return Reading(larger, math.log(old / new))


def told(old: float, new: float, *, differ: bool) -> Reading:
    """The answer of two times of which the tool says whether they differ."""
    return Reading((SLOWER if new > old else FASTER) if differ else NOTHING, math.log(old / new))


SIDE = """\
import sys
sys.path[:0] = [{folder!r}, {inputs!r}]
from {module} import work
from inputs import {payload} as made
INPUT = made(7)
def call():
    return work(INPUT)
"""
"""One side of a comparison. Its input is made once."""


# -- the tools ---------------------------------------------------------------------------------------------------------

BENCH = """\
import importlib, os
call = importlib.import_module(os.environ["SIDE"]).call
def test_work(benchmark):
    benchmark(call)
"""


def pytest_benchmark(folder: Path, seconds: float) -> Readings:
    """Save a run of one side, compare the other with it, and fail when the mean (or the least) is 5 % more."""
    (folder / "test_bench.py").write_text(BENCH, encoding="utf-8")
    words = ["-m", "pytest", "-q", "-p", "no:codspeed", "-p", "no:cacheprovider", "test_bench.py"]
    words.append(f"--benchmark-max-time={max(seconds / 2 - 2 * START_SECONDS, 0.1):g}")
    python(folder, *words, "--benchmark-save=old", SIDE="side_old")
    check = ("--benchmark-compare-fail", *(f"{field}:{SHARE:.0%}" for field in ("mean", "min")))
    said = python(
        folder, *words, "--benchmark-save=new", "--benchmark-compare=0001", *check, fails=True, SIDE="side_new"
    )
    old, new = (saved_stats(folder, number) for number in ("0001", "0002"))
    failed = set(re.findall(r"Field '(\w+)' has failed", said))
    return {
        f"{field}:5%": Reading(SLOWER if field in failed else NOTHING, math.log(old[field] / new[field]))
        for field in ("mean", "min")
    }


def saved_stats(folder: Path, number: str) -> dict[str, float]:
    """What pytest-benchmark kept of a run."""
    [file] = (folder / ".benchmarks").glob(f"*/{number}_*.json")
    stats: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["benchmarks"][0]["stats"]
    return stats


PYPERF = """\
import importlib, os, pyperf
call = importlib.import_module(os.environ["SIDE"]).call
pyperf.Runner().bench_func("work", call)
"""

PYPERF_SECONDS = 0.55
"""Of one of its processes: to begin, a warm-up and three values of 0.1 s."""


def pyperf(folder: Path, seconds: float) -> Readings:
    """Processes of each side, then `compare_to`, which has a t test."""
    (folder / "bench.py").write_text(PYPERF, encoding="utf-8")
    processes = max(2, int((seconds / 2 - 2 * START_SECONDS) / PYPERF_SECONDS))
    for side in ("old", "new"):
        words = ("bench.py", "--inherit-environ=SIDE", "--quiet", f"--processes={processes}", f"--output={side}.json")
        python(folder, *words, SIDE=f"side_{side}")
    said = python(folder, "-m", "pyperf", "compare_to", "old.json", "new.json")
    old, new = (pyperf_mean(folder / f"{side}.json") for side in ("old", "new"))
    return {"compare_to": told(old, new, differ="not significant" not in said.lower())}


def pyperf_mean(file: Path) -> float:
    """Seconds a call, over all values of a file."""
    [benchmark] = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    return statistics.fmean(value for run in benchmark["runs"] for value in run.get("values", ()))


ASV = {
    "version": 1,
    "project": "work",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "virtualenv",
    "matrix": {"req": {"numpy": [""]}},  # the newest: some of the functions need it
    "build_command": [],
    "install_command": ["in-dir={env_dir} python -c \"open('where.txt', 'w').write('{build_dir}')\""],
    "uninstall_command": [],
    "benchmark_dir": "benchmarks",
    "results_dir": "results",
}

ASV_BENCH = """\
import importlib, os, sys
FOLDER = open(os.path.join(sys.prefix, "where.txt")).read()
sys.path.insert(0, FOLDER)
call = importlib.import_module("side").call
def time_work():
    call()
"""


def asv(folder: Path, seconds: float) -> Readings:
    """`asv continuous` on a repository with a commit for each side, in one environment that is kept."""
    settings = ASV | {"pythons": [f"{sys.version_info[0]}.{sys.version_info[1]}"], "env_dir": str(_asv_environments())}
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "bench.py").write_text(ASV_BENCH, encoding="utf-8")
    (folder / "asv.conf.json").write_text(json.dumps(settings), encoding="utf-8")
    git = ("git", "-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "init.defaultBranch=main")
    ran(folder, *git, "init", "--quiet")
    for side in ("old", "new"):
        shutil.copy(folder / f"side_{side}.py", folder / "side.py")
        ran(folder, *git, "add", "--all")
        ran(folder, *git, "commit", "--quiet", "--message", side)
    ran(folder, "asv", "machine", "--yes")
    spend = max((seconds - 8 * START_SECONDS) / 4, 0.2)  # two rounds of each side
    repeat = f"repeat=(5, 100000, {spend:g})"
    words = ("asv", "continuous", "--factor", f"{1 + SHARE:g}", "-a", repeat, "-a", "warmup_time=0.1", "main~1", "main")
    said = ran(folder, *words, fails=True)
    if "NOT SIGNIFICANTLY CHANGED" not in said and "PERFORMANCE" not in said:
        raise ToolFailed(f"asv: {said[-500:]}")
    old, new = (_asv_median(folder, ran(folder, *git, "rev-parse", name).strip()) for name in ("main~1", "main"))
    return {"continuous, factor 1.05": told(old, new, differ="NOT SIGNIFICANTLY CHANGED" not in said)}


def _asv_environments() -> Path:
    folder = cache_directory() / "versus" / "asv"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _asv_median(folder: Path, commit: str) -> float:
    [file] = (folder / "results").glob(f"*/{commit[:8]}-*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    [[values, *_]] = content["results"].values()
    return float(values[0])


SCRIPT = "from {module} import call\nfor _ in range({calls}):\n    call()\n"

COMMAND_SECONDS = 0.2
"""Of one command that hyperfine times: then beginning Python is a tenth of it."""


def hyperfine(folder: Path, seconds: float) -> Readings:
    """Two commands that make as many calls; what its summary says, and the t test that it ships as a script."""
    calls = max(1, round(COMMAND_SECONDS / call_seconds(folder)))
    for side in ("old", "new"):
        (folder / f"run_{side}.py").write_text(SCRIPT.format(module=f"side_{side}", calls=calls), encoding="utf-8")
    runs = max(5, int((seconds - 1) / 2 / (COMMAND_SECONDS + 0.05)))
    words = ("--style=none", "--warmup=1", f"--runs={runs}", "--export-json=both.json")
    ran(folder, "hyperfine", *words, *(f"{interpreter()} run_{side}.py" for side in ("old", "new")))
    old, new = json.loads((folder / "both.json").read_text(encoding="utf-8"))["results"]
    ratio = old["mean"] / new["mean"]
    error = ratio * math.hypot(old["stddev"] / old["mean"], new["stddev"] / new["mean"])
    from scipy.stats import ttest_ind

    chance = ttest_ind(old["times"], new["times"], equal_var=False).pvalue
    return {
        "summary, beyond its ±": told(old["mean"], new["mean"], differ=abs(ratio - 1) > error),
        "t test": told(old["mean"], new["mean"], differ=chance < LEVEL),
    }


def codspeed(folder: Path, seconds: float) -> Readings:
    """Its plugin for pytest, here by the clock: two tables. What they come to, its service says; here it is 5 %."""
    (folder / "test_bench.py").write_text(BENCH, encoding="utf-8")
    words = ["-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "test_bench.py", "--codspeed"]
    words += ["--codspeed-mode=walltime", f"--codspeed-max-time={max(seconds / 2 - 2 * START_SECONDS, 0.1):g}"]
    figures = []
    for side in ("old", "new"):
        python(folder, *words, SIDE=f"side_{side}")
        [file] = (folder / ".codspeed").glob("results_*.json")
        figures.append(json.loads(file.read_text(encoding="utf-8"))["benchmarks"][0]["stats"]["median_ns"])
        file.unlink()
    return {"median, 5 % apart": apart(*figures)}


TORCH = """\
import json
from torch.utils.benchmark import Compare, Timer
import side_old, side_new
found = [
    Timer("call()", globals={{"call": each.call}}, description=name).blocked_autorange(min_run_time={seconds})
    for name, each in (("old", side_old), ("new", side_new))
]
compare = Compare(found)
compare.trim_significant_figures()
print(json.dumps({{"table": str(compare), "medians": [one.median for one in found]}}))
"""


def torch_timer(folder: Path, seconds: float) -> Readings:
    """`Timer.blocked_autorange` of each, side by side in a table of `Compare` whose digits count."""
    each = max((seconds - 5 * START_SECONDS) / 2, 0.1)
    (folder / "bench.py").write_text(TORCH.format(seconds=f"{each:g}"), encoding="utf-8")
    content = json.loads(ran(folder, sys.executable, "bench.py", OMP_NUM_THREADS="1").splitlines()[-1])
    [row] = re.findall(r"call\(\)\s*\|\s*([\d.]+)\s*\|\s*([\d.]+)", content["table"])
    return {"Compare, other digits": told(*content["medians"], differ=row[0] != row[1])}


def timeit(folder: Path, seconds: float) -> Readings:
    """Best of five repetitions, each as long as the time allows."""
    number = max(1, int((seconds / 2 - START_SECONDS) / 5 / call_seconds(folder)))
    old, new = (_best_of(folder, side, 5, number) for side in ("old", "new"))
    return {"best, 5 % apart": apart(old, new), "best, 2 % apart": apart(old, new, 0.02)}


UNITS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6, "nsec": 1e-9}


def _best_of(folder: Path, side: str, repetitions: int, number: int) -> float:
    """Seconds a call: `python -m timeit` of so many calls, the best of some repetitions."""
    words = ("-r", str(repetitions), "-n", str(number), "-s", f"from side_{side} import call", "call()")
    said = python(folder, "-m", "timeit", "-v", *words)
    raw = next(line for line in said.splitlines() if line.startswith("raw times:"))
    return min(float(time) * UNITS[unit] for time, unit in re.findall(r"([\d.e+-]+) (\w+)", raw)) / number


REPETITIONS = """\
import json, time
from {module} import call
number, times = {number}, []
end = time.perf_counter() + {seconds}
while time.perf_counter() < end or len(times) < 10:
    begun = time.perf_counter()
    for _ in range(number):
        call()
    times.append((time.perf_counter() - begun) / number)
print(json.dumps(times))
"""


def mann_whitney(folder: Path, seconds: float) -> Readings:
    """Repetitions of one side, then of the other, and a U test of both: as google/benchmark's compare.py does."""
    number = max(1, round(0.02 / call_seconds(folder)))
    samples = []
    for side in ("old", "new"):
        text = REPETITIONS.format(module=f"side_{side}", number=number, seconds=seconds / 2 - START_SECONDS)
        (folder / "bench.py").write_text(text, encoding="utf-8")
        samples.append(json.loads(python(folder, "bench.py")))
    from scipy.stats import mannwhitneyu

    chance = mannwhitneyu(*samples).pvalue
    return {"U test": told(*map(statistics.median, samples), differ=chance < LEVEL)}


TOOLS: dict[str, Callable[[Path, float], Readings]] = {
    "pytest-benchmark": pytest_benchmark,
    "pyperf": pyperf,
    "asv": asv,
    "hyperfine": hyperfine,
    "pytest-codspeed": codspeed,
    "torch.utils.benchmark": torch_timer,
    "timeit": timeit,
    "Mann-Whitney": mann_whitney,
}


FIGURES = {
    "verdict": "estimate",
    "mean:5%": "mean",
    "min:5%": "least",
    "compare_to": "mean",
    "continuous, factor 1.05": "median",
    "summary, beyond its ±": "mean",
    "t test": "mean",
    "median, 5 % apart": "median",
    "Compare, other digits": "median",
    "best, 5 % apart": "best of five",
    "best, 2 % apart": "best of five",
    "U test": "median",
}
"""Rule → of what its log ratio is."""


def call_seconds(folder: Path) -> float:
    """About how long a call of the old side takes: what a user knows before."""
    one = _best_of(folder, "old", 1, 1)
    return _best_of(folder, "old", 3, max(1, round(0.05 / one)))


def tool_asked(tool: str, comparison: KnownComparison, seconds: float) -> Readings:
    """What one of them says of a comparison of functions. Raises ToolFailed."""
    with tempfile.TemporaryDirectory(prefix="versus-") as name:
        folder = Path(name)
        comparison.write(folder)
        for side, path in zip(("old", "new"), map(Path, comparison.files), strict=False):
            text = SIDE.format(
                folder=str(folder / path.parent), inputs=name, module=path.stem, payload=comparison.called_with
            )
            (folder / f"side_{side}.py").write_text(text, encoding="utf-8")
        return TOOLS[tool](folder, seconds)
