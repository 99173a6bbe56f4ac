"""How long the server takes for each page: `make dashboard-speed`. A benchmark, not a test; nothing is asserted.

It writes a results folder of many runs, then opens each page as a browser would, without one: once with nothing read
(`cold`: a server that has just started, which has the list of runs from the last time) and then again and again
(`cached`). What is timed is the script's run in this process, with the test client
around it, which the row "an empty page" shows alone: it parses the page's sources each time, a server once. Beside the
wall clock stands the CPU time, which is nearly the same on a machine that does nothing else; where it is much less, the
machine was busy and the wall clock says nothing. The newest run has a profile of 20 000 boxes to send.

Where there is a Chromium, it also opens the difference of two flamegraphs, nearly 20 000 boxes, on a server of its own:
from the click to the drawn boxes, and what a search and an enlarged box then take.

Goals on two cores: below 300 ms cached and below 1.5 s cold; below 1 s for each step of the flamegraph.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from rich.table import Table
from rich.text import Text
from streamlit.testing.v1 import AppTest

from llama_workbench import ROOT
from llama_workbench.harness.profilers.py_spy import PROFILES
from llama_workbench.harness.report.standings import write_standings
from llama_workbench.harness.report.terminal import console, show
from llama_workbench.harness.store.files import STANDINGS
from llama_workbench.harness.store.folder import RunFolder
from tests.dashboard_browser import FLAGS, installed_chromium, serving, settled
from tests.dashboard_runs import wide
from tests.runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Locator

APP = ROOT / "dashboard" / "app.py"
EMPTY = "an empty page"
SAMPLES_A_ROUND = 120  # of a run by `write_run`
GOALS_MS = {"cold": 1500.0, "cached": 300.0}
FLAMEGRAPH_GOAL_MS = 1000.0


@dataclass(frozen=True)
class Timing:
    """Wall and CPU milliseconds of each opening of a page; `problem` is what went wrong on it, else ""."""

    page: str
    cold: tuple[tuple[float, float], ...]
    cached: tuple[tuple[float, float], ...]
    problem: str


def write_results(
    folder: Path, *, runs: int, samples: int, frames: int = 20_000, like: Path | None = None
) -> RunFolder:
    """Fill `folder` with `runs` runs of `samples` samples in all, an hour apart; returns the newest.

    Each is a copy, under its own name, date and seed, of one of eight runs whose samples are drawn (seeds 0 to 7) and
    whose verdicts are judged; or of the run folder `like`, which then says how many samples there are. All have their
    standings beside them, as the judge leaves them. Every tenth is a baseline. The newest has a profile of `frames`
    boxes.
    """
    rounds = max(1, round(samples / runs / SAMPLES_A_ROUND))
    with tempfile.TemporaryDirectory() as aside:
        drawn = range(min(8, runs))
        bases = [like or write_run(Path(aside) / str(seed), seed=seed, rounds=rounds).path for seed in drawn]
        if like is None:
            for base in bases:
                write_standings(RunFolder(base))
        for number in range(runs):
            name = f"{number:04d}"
            home = folder / ("runs" if number % 10 else "baselines")
            shutil.copytree(bases[number % len(bases)], home / name)
            run = RunFolder(home / name)
            started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
            run.renew(id=name, started=started.isoformat(), seed=number)
            if (run.path / STANDINGS).exists():
                standings = json.loads((run.path / STANDINGS).read_text(encoding="utf-8"))
                own = {"made_from": run.digest(), "name": name, "started": started.isoformat()}
                run.write_json(STANDINGS, standings | own)
                run.renew(STANDINGS)
    write_profile(run, frames)
    return run


def write_profile(run: RunFolder, frames: int) -> None:
    """A drawn profile (seed 0) of `frames` boxes, at most sixteen deep, of the baseline on the run's first workload."""
    draw = random.Random(0)
    stacks = ["<module> (worker.py:10)"]
    while len(stacks) < frames:
        parent = draw.choice(stacks)
        if parent.count(";") < 15:
            stacks.append(f"{parent};f{len(stacks)} (variants/drawn.py:{len(stacks)})")
    first = run.read_manifest()["experiments"][0]
    workload, variant = first["workload"]["name"], first["baseline"]
    path = run.path / "profiles" / "drawn.folded"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{stack} {draw.randint(1, 50)}\n" for stack in stacks), encoding="utf-8")
    row = {
        "workload": workload,
        "variant": variant,
        "path": "profiles/drawn.folded",
        "rate_hz": 250,
        "median_ns": 10**7,
    }
    others = [each for each in run.records(PROFILES) if (each["workload"], each["variant"]) != (workload, variant)]
    run.write_json(PROFILES, [row | {"samples": frames, "reason": None}, *others])
    run.renew(PROFILES, "profiles/drawn.folded")


def pages() -> list[str]:
    """The scripts of the pages, as the app names them."""
    return sorted(f"{path.parent.name}/{path.name}" for path in (APP.parent / "page_scripts").glob("*.py"))


def measure(
    results: Path | str, opened: Sequence[str], *, cold: int = 3, cached: int = 7, cache: Path | None = None
) -> Iterator[Timing]:
    """Open an empty page and each of `opened` on `results`, `cold` times with empty caches and `cached` times more.

    cache: where the server keeps its list of runs, beside them if nothing is said.
    """
    with _started_on(str(results), str(cache or Path(results) / ".cache")), tempfile.TemporaryDirectory() as aside:
        empty = Path(aside) / "empty.py"
        empty.write_text("import streamlit\n")
        yield _timing(EMPTY, empty, cold, cached)
        for page in opened:
            yield _timing(page, APP, cold, cached)


def _timing(page: str, script: Path, cold: int, cached: int) -> Timing:
    app = AppTest.from_file(str(script), default_timeout=600)
    if page != EMPTY:
        app.run().switch_page(page)  # only then is a page known that has another path in the URL than its file's name
    app.run()  # what is imported, and found out about the installed packages, once for each session
    problems: set[str] = set()

    def once(*, forget: bool) -> tuple[float, float]:
        if forget:
            st.cache_data.clear()
            st.cache_resource.clear()
        start = time.perf_counter(), time.process_time()
        app.run()
        wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
        problems.update(str(error.message) for error in app.exception)
        return 1000 * wall, 1000 * cpu

    first = tuple(once(forget=True) for _ in range(cold))
    again = tuple(once(forget=False) for _ in range(cached))
    return Timing(page, first, again, "; ".join(sorted(problems)))


def flamegraph_times(chromium: str, *, times: int = 7) -> dict[str, tuple[float, ...]]:
    """Milliseconds of each step in a real browser, from the reader's action until its answer is on the screen.

    The page is open and shows both sides (nearly 20,000 boxes each) when the difference is asked for.
    """
    from playwright.sync_api import sync_playwright

    steps: dict[str, list[float]] = {"draw the difference": [], "search in it": [], "enlarge a box": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        run = write_run(Path(folder) / "runs" / "large", only=["prefill-15m-t128"], rounds=12)
        for row in run.records("profiles.json"):
            if row["path"]:
                (run.path / row["path"]).write_text(wide(), encoding="utf-8")
        with (
            serving(Path(folder)) as address,
            driver.chromium.launch(executable_path=chromium, args=list(FLAGS)) as browser,
        ):
            page = browser.new_page(viewport={"width": 1360, "height": 2400})
            flames = page.locator(".flames")

            def timed(step: str, act: Callable[[], object], answer: Locator) -> None:
                start = time.perf_counter()
                act()
                answer.wait_for()
                steps[step].append(1000 * (time.perf_counter() - start))

            for _ in range(times + 1):
                page.goto(f"{address}claim?run=large&claim=mask-caching-helps&flame=side")
                settled(page)
                flames.locator("canvas[data-zoomed]").nth(1).wait_for()
                difference = page.get_by_role("radio", name="Difference")
                only = flames.locator(".pictures:has(> :only-child) canvas[data-zoomed='']")
                timed("draw the difference", difference.click, only)
                canvas = flames.locator(".picture > canvas")
                look = partial(flames.locator("input").fill, "v40.py")
                timed("search in it", look, flames.locator(".found", has_text="480 boxes"))
                enlarge = partial(canvas.click, position={"x": 4, "y": 3 * 22 + 10})
                timed("enlarge a box", enlarge, flames.locator(".picture > canvas:not([data-zoomed=''])"))
    return {step: tuple(found[1:]) for step, found in steps.items()}  # the first fills the caches of both


@contextmanager
def _started_on(results: str, cache: str) -> Iterator[None]:
    """The process looks like `streamlit run app.py` with $WORKBENCH_RESULTS and $WORKBENCH_CACHE."""
    arguments = sys.argv
    chosen = {"WORKBENCH_RESULTS": results, "WORKBENCH_CACHE": cache}
    before = {name: os.environ.get(name) for name in chosen}
    sys.argv = [str(APP)]
    os.environ.update(chosen)
    try:
        yield
    finally:
        sys.argv = arguments
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def table(timings: Sequence[Timing]) -> Table:
    """Median and range of each page beside the goals."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("page", *(f"{kind}: median [range], goal {goal:.0f} ms" for kind, goal in GOALS_MS.items()), ""):
        found.add_column(Text(heading))
    for timing in timings:
        cells = []
        for kind, goal in GOALS_MS.items():
            openings: tuple[tuple[float, float], ...] = getattr(timing, kind)
            walls, cpus = zip(*openings, strict=True)
            median = statistics.median(walls)
            met = "" if timing.page == EMPTY else ", met" if median < goal else ", missed"
            spread = f"[{min(walls):.0f}, {max(walls):.0f}] of {len(walls)}"
            cells.append(f"{median:.0f} ms {spread}, CPU {statistics.median(cpus):.0f} ms{met}")
        found.add_row(*(Text(cell) for cell in (timing.page, *cells, timing.problem and f"failed: {timing.problem}")))
    return found


def flamegraph_table(steps: Mapping[str, Sequence[float]]) -> Table:
    """Median and range of each step beside the goal."""
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    found.add_column("flamegraph of 20,000 boxes")
    found.add_column(Text(f"median [range], goal {FLAMEGRAPH_GOAL_MS:.0f} ms"))  # no markup: it has brackets
    for step, walls in steps.items():
        median = statistics.median(walls)
        met = "met" if median < FLAMEGRAPH_GOAL_MS else "missed"
        found.add_row(step, Text(f"{median:.0f} ms [{min(walls):.0f}, {max(walls):.0f}] of {len(walls)}, {met}"))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time the server for each page of the dashboard.")
    parser.add_argument("--runs", type=int, default=200, help="runs in the results folder (200)")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples in all of them (1000000)")
    parser.add_argument("--like", type=Path, help="copy this run folder instead of drawing samples")
    parser.add_argument("--page", action="append", choices=pages(), help="open this page only (may be given again)")
    parser.add_argument("--json", type=Path, help="also write every time to this file")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        write_results(results, runs=chosen.runs, samples=chosen.samples, like=chosen.like)
        timings = list(measure(results, chosen.page or pages()))
    out = console()
    show(
        Text(f"{chosen.runs} runs" + (f" like {chosen.like}" if chosen.like else f", {chosen.samples:,} samples")), out
    )
    show(table(timings), out)
    chromium = installed_chromium()
    if chromium is None:
        show(Text("flamegraph: not timed, no Chromium on this machine (apt-get install chromium, or the like)"), out)
    else:
        show(flamegraph_table(flamegraph_times(chromium)), out)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([vars(timing) for timing in timings], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
