"""How long a reader waits for each page of the dashboard, in a real browser: `make dashboard-speed`. Nothing is
asserted.

It writes a results folder of many runs and starts the dashboard on it as people do. Chromium then opens each view by
its address, in turns, and each page of the menu by a click on another one. Two moments count, from the beginning of the
navigation or from the click: when the page has its first words, and when nothing in it changes any more. Opened for the
first time on this server, a view reads its files. A Streamlit page with one line stands beside them: what that takes is
not the dashboard's.

The browser is as a user's is: it has a profile on disk, and each view was opened VISITS times before it counts as warm.
Chromium notes a script at the first visit, keeps its compiled code at the second and takes that from the third on. In
the throw-away profile of a test there is none of that. plotly.js (4.7 MB) is read from the disk at each opening all the
same, for it is too large for the cache in memory, and Chromium compiles it anew unless its kept code comes first.

What is within a canvas does not count: it is never drawn. Streamlit's tables write there what a screen reader reads, a
third of a second after they are seen.

Goals of what is warm, on two cores: first words after 0.5 s, all of it after 1.0 s.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table
from rich.text import Text

from llama_workbench import ROOT
from llama_workbench.harness.report.standings import write_standings
from llama_workbench.harness.report.terminal import console, show
from llama_workbench.harness.store.files import STANDINGS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.passes import PROFILES
from tests.dashboard_browser import FLAGS, WAIT_MS, installed_chromium, serving
from tests.runs import write_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

SAMPLES_A_ROUND = 120  # of a run by `write_run`
FUNCTIONS = "first-comparison"
QUIET_MS = 500
"""Where nothing has changed for so long, a page is settled; it was since the last change."""

FIRST_GOAL_MS, SETTLED_GOAL_MS = 500.0, 1000.0

EMPTY = "one line, by Streamlit alone"

VIEWS: Mapping[str, str] = {
    "Answer": "?run={run}",
    "Answer, two functions": f"?run={FUNCTIONS}",
    "Comparison": "comparison?run={run}",
    "Comparison, two functions": f"comparison?run={FUNCTIONS}",
    "Explore, time by phase": "explore?run={run}&show=time",
    "Explore, flamegraphs": "explore?run={run}&show=flamegraphs",
    "Explore, memory": "explore?run={run}&show=memory",
    "Runs": "runs?run={run}&show=list",
    "Runs, two": "runs?run={run}&show=two",
    "Runs, over time": "runs?run={run}&show=history",
    "Runs, trust": "runs?run={run}&show=trust",
}
"""Addresses by what they show; {run} is the newest run."""

VISITS = 3
"""Openings of a view before it is warm: Chromium keeps a script's compiled code at the second."""

MENU = ("Answer", "Comparison", "Explore", "Runs")

WATCH = """
const PARTS = '[data-testid=stMainBlockContainer] [data-testid=stElementContainer]';
const words = () => [...document.querySelectorAll(PARTS)].map((each) => each.textContent).join(' ');
window.seen = {begin: 0, first: null, last: null, before: ''};
addEventListener('click', () => {
  window.seen = {begin: performance.now(), first: null, last: null, before: words()};
}, true);
new MutationObserver((changes) => {
  const main = document.querySelector('[data-testid=stMainBlockContainer]');
  const here = changes.filter((each) => main && !each.target.parentElement?.closest('canvas')
    && each.target.tagName !== 'CANVAS' && (main.contains(each.target) || each.target.contains(main)
    && [...each.addedNodes].some((node) => node.contains(main))));
  if (!here.length) return;
  window.seen.last = performance.now();
  if (window.seen.first === null) {
    const now = words();
    if (now !== window.seen.before && /\\p{L}{2}/u.test(now)) window.seen.first = window.seen.last;
  }
}).observe(document, {subtree: true, childList: true, characterData: true});
"""
"""Keeps when the page had its first words since the navigation, or other ones than at the last click, and when it last
changed."""

IS_SETTLED = f"""() => {{
  const app = document.querySelector('[data-testid=stApp]');
  const seen = window.seen;
  return app?.dataset.testScriptState === 'notRunning' && seen.first !== null
    && performance.now() - seen.last > {QUIET_MS};
}}"""


class Opening(NamedTuple):
    """Milliseconds until a page had its first words, and until it did not change any more."""

    first: float
    settled: float


class Openings(NamedTuple):
    """Those of one page: the first on a server that has just started, and the warm ones."""

    cold: Opening
    warm: list[Opening]


def write_results(folder: Path, *, runs: int, samples: int, frames: int = 20_000) -> RunFolder:
    """Fill `folder` with `runs` runs of `samples` samples in all, an hour apart; returns the newest.

    Each is a copy, under its own name, date and seed, of one of eight runs whose samples are drawn (seeds 0 to 7) and
    whose verdicts are judged, with standings beside them, as the judge leaves them. Every tenth is a baseline. The
    newest has a profile of `frames` boxes, and beside them lies the committed comparison of two functions (FUNCTIONS).
    """
    rounds = max(1, round(samples / runs / SAMPLES_A_ROUND))
    with tempfile.TemporaryDirectory() as aside:
        drawn = range(min(8, runs))
        bases = [write_run(Path(aside) / str(seed), seed=seed, rounds=rounds) for seed in drawn]
        for base in bases:
            write_standings(base)
        for number in range(runs):
            name = f"{number:04d}"
            home = folder / ("runs" if number % 10 else "baselines")
            shutil.copytree(bases[number % len(bases)].path, home / name)
            run = RunFolder(home / name)
            started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
            run.renew(id=name, started=started.isoformat(), seed=number)
            standings = json.loads((run.path / STANDINGS).read_text(encoding="utf-8"))
            own = {"made_from": run.digest(), "name": name, "started": started.isoformat()}
            run.write_json(STANDINGS, standings | own)
            run.renew(STANDINGS)
    write_profile(run, frames)
    shutil.copytree(ROOT / "results" / "baselines" / FUNCTIONS, folder / "runs" / FUNCTIONS)
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


def page_times(chromium: str, results: Path, run: str, *, times: int = 7, visits: int = VISITS) -> dict[str, Openings]:
    """The openings of each view and of each page of the menu, the first of a server that has just started before the
    warm ones. visits: before these."""
    found: dict[str, list[Opening]] = {name: [] for name in VIEWS}
    with serving(results) as address, _page(chromium) as page:
        for _ in range(visits + times):
            for name, view in VIEWS.items():
                page.goto(address + view.format(run=run))
                found[name].append(_seen(page))
        page.goto(f"{address}runs?run={run}")
        _seen(page)
        for _ in range(visits + times):
            for name in MENU:
                page.locator('[data-testid="stTopNavLink"]', has_text=name).click()
                found.setdefault(f"{name}, by a click in the menu", []).append(_seen(page))
    return {name: Openings(openings[0], openings[visits:]) for name, openings in found.items()}


def empty_times(chromium: str, *, times: int = 7) -> Openings:
    """The same of a page of one line."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.write_text('import streamlit as st\n\nst.write("Nothing here.")\n', encoding="utf-8")
        with serving(Path(folder), script) as address, _page(chromium) as page:
            openings = []
            for _ in range(VISITS + times):
                page.goto(address)
                openings.append(_seen(page))
    return Openings(openings[0], openings[VISITS:])


@contextmanager
def _page(chromium: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, sync_playwright() as driver:
        browser = driver.chromium.launch_persistent_context(
            profile, executable_path=chromium, args=list(FLAGS), viewport={"width": 1400, "height": 900}
        )
        with browser:
            page = browser.new_page()
            page.add_init_script(WATCH)
            yield page


def _seen(page: Page) -> Opening:
    """Wait until the page is settled."""
    page.wait_for_function(IS_SETTLED, polling=50, timeout=WAIT_MS)
    begin, first, last = page.evaluate("() => [seen.begin, seen.first, seen.last]")
    return Opening(first - begin, last - begin)


def page_table(found: Mapping[str, Openings]) -> Table:
    """Medians and ranges beside the goals; the first opening of each view stands alone."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    goals = (f"first words, goal {FIRST_GOAL_MS:.0f} ms", f"settled, goal {SETTLED_GOAL_MS:.0f} ms")
    for heading in ("page", *goals, "opened for the first time"):
        table.add_column(Text(heading))
    for name, (cold, warm) in found.items():
        cells = [
            _cell([each.first for each in warm], FIRST_GOAL_MS),
            _cell([each.settled for each in warm], SETTLED_GOAL_MS),
            f"{cold.first:.0f} and {cold.settled:.0f} ms",
        ]
        table.add_row(*map(Text, (name, *cells)))
    return table


def _cell(walls: Sequence[float], goal: float) -> str:
    median = statistics.median(walls)
    met = "met" if median <= goal else "missed"
    return f"{median:.0f} ms [{min(walls):.0f}, {max(walls):.0f}] of {len(walls)}, {met}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time the pages of the dashboard in Chromium.")
    parser.add_argument("--runs", type=int, default=200, help="runs in the results folder (200)")
    parser.add_argument("--samples", type=int, default=1_000_000, help="samples in all of them (1000000)")
    parser.add_argument("--times", type=int, default=7, help="how often each view is opened again (7)")
    chosen = parser.parse_args(arguments)
    chromium = installed_chromium()
    if chromium is None:
        raise SystemExit("no Chromium on this machine: apt-get install chromium, or the like")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        newest = write_results(results, runs=chosen.runs, samples=chosen.samples)
        found = page_times(chromium, results, newest.path.name, times=chosen.times)
    found[EMPTY] = empty_times(chromium, times=chosen.times)
    out = console()
    show(Text(f"{chosen.runs} runs, {chosen.samples:,} samples; of warm pages: median [range]"), out)
    show(page_table(found), out)


if __name__ == "__main__":
    main()
