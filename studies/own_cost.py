"""What measuring itself costs, here and with other tools: `python -m studies.own_cost` prints two tables; with the name
of a document (docs/validation.md) behind the number of repetitions they are also written there, between its markers.

Of each tool: what it says a call of a function takes that does nothing, which is what its loop costs a call (a bare
loop between two readings of the clock has it too); seconds from the command until it says which of two functions of a
millisecond is slower, the one that does a fifth more; and the most memory that one of its processes held meanwhile. Of
this workbench also how much of a comparison with a budget of ten seconds lies inside samples of what is compared, for
calls of several lengths. Each is the median of some repetitions, the tools by turns.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import IO

import psutil

from llama_workbench.harness.report.markdown import markdown_rows, update_file
from llama_workbench.harness.store.folder import RunFolder
from studies.versus_tools import BENCH, COMMAND_SECONDS, PYPERF, SCRIPT, TORCH, interpreter, pyperf_mean, saved_stats

REPETITIONS = 5

NOTHING = "def call(*ignored):\n    pass\n"
SPINS = "def call(*ignored):\n    sum(range({upto}))\n"
MILLISECOND = 60_000
"""Upto for about a millisecond."""

BUDGET = 10
"""Seconds of the comparisons whose share inside samples is told."""

INPUTS = "def made(seed):\n    return (seed,)\n"

BARE = """\
import time
from side_old import call


def least():
    best = float("inf")
    for _ in range(2000):
        begun = time.perf_counter_ns()
        for _ in range(1000):
            call()
        best = min(best, (time.perf_counter_ns() - begun) / 1000)
    return best


print(least())
"""


@dataclass(frozen=True)
class Spent:
    """What a tool's commands printed, how long they took, and the most bytes that one process held. first_answer:
    seconds until a line began as it was waited for; 0 where none did."""

    said: str
    seconds: float
    peak_bytes: int
    first_answer: float = 0.0


def spent(folder: Path, *commands: Sequence[str], awaited: str = "", **more: str) -> Spent:
    """Run commands one after the other. awaited: how the line begins that is waited for. Raises CalledProcessError."""
    begun, lines, peak, first = time.monotonic(), list[str](), 0, 0.0
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def read(stream: IO[str]) -> None:
        nonlocal first
        for line in stream:
            lines.append(line)
            if awaited and line.startswith(awaited):
                first = first or time.monotonic() - begun

    for command in commands:
        with subprocess.Popen(
            command, cwd=folder, env=os.environ | {"PATH": path} | more, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            reader = Thread(target=read, args=(process.stdout,))
            reader.start()
            while process.poll() is None:
                peak = max(peak, _largest(process.pid))
                time.sleep(0.02)
            reader.join()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, "".join(lines))
    return Spent("".join(lines), time.monotonic() - begun, peak, first)


def _largest(process: int) -> int:
    """Of a process and all below it, the most resident bytes of one."""
    try:
        parent = psutil.Process(process)
        return max(each.memory_info().rss for each in (parent, *parent.children(recursive=True)))
    except psutil.Error:
        return 0


def ours(folder: Path, budget: int = 20) -> tuple[Spent, float]:
    """This workbench's command for a comparison, and ns a call of the first side."""
    words = ["-p", "no:cacheprovider", "--compare", "old=side_old.py:call", "new=side_new.py:call"]
    words += ["--call", "inputs.py:made", "--budget", str(budget), "--no-causes", "--run-dir", "run"]
    found = spent(folder, (sys.executable, "-m", "pytest", "--benchmark", *words), awaited="workbench: after ")
    samples = RunFolder(folder / "run").read_samples()
    mine = samples.where(variant="old")
    return found, statistics.median((mine["cpu_ns"] / mine["repeats"]).tolist())


def pytest_benchmark(folder: Path) -> tuple[Spent, float]:
    """One run saved, the other compared with it."""
    (folder / "test_bench.py").write_text(BENCH, encoding="utf-8")
    words = (interpreter(), "-m", "pytest", "-q", "-p", "no:codspeed", "-p", "no:cacheprovider", "test_bench.py")
    old = spent(folder, (*words, "--benchmark-save=old"), SIDE="side_old")
    new = spent(folder, (*words, "--benchmark-compare=0001"), SIDE="side_new")
    return _together(old, new), saved_stats(folder, "0001")["median"] * 1e9


def pyperf(folder: Path) -> tuple[Spent, float]:
    """Both sides with its usual numbers, then `compare_to`."""
    (folder / "bench.py").write_text(PYPERF, encoding="utf-8")
    sides = [
        spent(folder, (interpreter(), "bench.py", "--inherit-environ=SIDE", "-o", f"{side}.json"), SIDE=f"side_{side}")
        for side in ("old", "new")
    ]
    last = spent(folder, (interpreter(), "-m", "pyperf", "compare_to", "old.json", "new.json"))
    return _together(*sides, last), pyperf_mean(folder / "old.json") * 1e9


def hyperfine(folder: Path) -> tuple[Spent, float]:
    """Two scripts that make as many calls; its usual number of runs. Its time of a call is that of the script."""
    calls = round(COMMAND_SECONDS * 1000)  # of a millisecond
    for side in ("old", "new"):
        (folder / f"run_{side}.py").write_text(SCRIPT.format(module=f"side_{side}", calls=calls), encoding="utf-8")
    scripts = [f"{interpreter()} run_{side}.py" for side in ("old", "new")]
    found = spent(folder, ("hyperfine", "--style=none", "--export-json=both.json", *scripts))
    return found, json.loads((folder / "both.json").read_text(encoding="utf-8"))["results"][0]["mean"] / calls * 1e9


def torch_timer(folder: Path) -> tuple[Spent, float]:
    """`blocked_autorange` of both sides with its usual time, and the table."""
    (folder / "bench.py").write_text(TORCH.format(seconds=0.2), encoding="utf-8")
    found = spent(folder, (sys.executable, "bench.py"), OMP_NUM_THREADS="1")
    return found, json.loads(found.said.splitlines()[-1])["medians"][0] * 1e9


def timeit(folder: Path) -> tuple[Spent, float]:
    """`python -m timeit` of both sides."""
    commands = [
        (interpreter(), "-m", "timeit", "-u", "nsec", "-s", f"from side_{side} import call", "call()")
        for side in ("old", "new")
    ]
    found = spent(folder, *commands)
    return found, float(re.findall(r"best of \d+: ([\d.e+]+) nsec", found.said)[0])


def bare(folder: Path) -> tuple[Spent, float]:
    """A loop of a thousand calls between two readings of the clock, the best of many."""
    (folder / "bench.py").write_text(BARE, encoding="utf-8")
    found = spent(folder, (interpreter(), "bench.py"))
    return found, float(found.said)


def _together(*every: Spent) -> Spent:
    return Spent(
        "".join(each.said for each in every),
        sum(each.seconds for each in every),
        max(each.peak_bytes for each in every),
    )


Tool = Callable[[Path], tuple[Spent, float]]
"""Lets a tool compare both sides of a folder; also ns a call of the first side by it."""

TOOLS: dict[str, Tool] = {
    "this workbench": ours,
    "pytest-benchmark": pytest_benchmark,
    "pyperf": pyperf,
    "hyperfine": hyperfine,
    "torch.utils.benchmark": torch_timer,
    "timeit": timeit,
}


@contextmanager
def folder_with(old: str, new: str) -> Iterator[Path]:
    """A folder with both sides and what makes inputs."""
    with tempfile.TemporaryDirectory(prefix="own-cost-") as name:
        for file, text in (("side_old.py", old), ("side_new.py", new), ("inputs.py", INPUTS)):
            Path(name, file).write_text(text, encoding="utf-8")
        yield Path(name)


def measured(tool: Tool, old: str, new: str) -> tuple[Spent, float]:
    """What a tool says of two sides, in a folder of their own."""
    with folder_with(old, new) as folder:
        return tool(folder)


def inside(text: str) -> tuple[float, float, float]:
    """Of a comparison of a function with itself, the share inside samples of the two: of the time of the rounds, and of
    that from return to answer; and those seconds."""
    with folder_with(text, text) as folder:
        found, _ = ours(folder, BUDGET)
        [experiment] = RunFolder(folder / "run").read_manifest()["experiments"]
        compared = float(experiment["compared_seconds"])
        return compared / experiment["seconds"], compared / found.seconds, found.seconds


def main(repetitions: int = REPETITIONS, *into: Path) -> None:
    """Measure by turns, print the tables, and write them into documents."""
    interpreter()
    tools = {name: tool for name, tool in TOOLS.items() if tool is not torch_timer or find_spec("torch")}
    empty: dict[str, list[float]] = {name: [] for name in ("a bare loop", *tools)}
    seconds: dict[str, list[float]] = {name: [] for name in tools}
    peaks: dict[str, list[int]] = {name: [] for name in tools}
    slow, slower, twice = (SPINS.format(upto=MILLISECOND * fifths // 5) for fifths in (5, 6, 10))
    for number in range(repetitions):
        empty["a bare loop"].append(measured(bare, NOTHING, NOTHING)[1])
        for name, tool in tools.items():
            if tool is not hyperfine:  # it times whole programs
                empty[name].append(measured(tool, NOTHING, NOTHING)[1])
            found, _ = measured(tool, slow, slower)
            seconds[name].append(found.seconds)
            peaks[name].append(found.peak_bytes)
            sys.stderr.write(f"{number + 1} of {repetitions}: {name}\n")
    head = ("tool", "an empty call, ns", "two functions of 1 ms, seconds until its answer", "largest process, MB")
    lines = [("a bare loop", _median(empty["a bare loop"]), "", "")]
    for name in tools:
        peak = _median([each / 1e6 for each in peaks[name]])
        lines.append((name, _median(empty[name]), f"{statistics.median(seconds[name]):.1f}", peak))
    table = markdown_rows(head, lines) + "\n"
    first = statistics.median(measured(ours, slow, twice)[0].first_answer for _ in range(repetitions))
    told = (
        f"If one does twice as much, this workbench reports it after {first:.1f} s, and continues until the interval "
        "is narrow.\n"
    )
    head = ("a call takes", "of the time of its processes", "of all, from return to answer", "seconds in all")
    of_calls: list[tuple[str, ...]] = []
    for ms in (0.1, 1, 10):
        text = SPINS.format(upto=round(MILLISECOND * ms))
        of_rounds, of_all, took = zip(*(inside(text) for _ in range(repetitions)), strict=True)
        shares = (f"{100 * statistics.median(each):.0f} %" for each in (of_rounds, of_all))
        of_calls.append((f"{ms:g} ms", *shares, f"{statistics.median(took):.1f}"))
    blocks = {"own-cost": table, "own-cost-first": told, "own-cost-shares": markdown_rows(head, of_calls) + "\n"}
    sys.stdout.write("\n".join(blocks.values()))
    for path in into:
        update_file(path, blocks)


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f}" if values else ""


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else REPETITIONS, *map(Path, sys.argv[2:]))
