"""Pages on 10,000 runs in an object store, against 200 on disk: `python -m studies.store_speed`. No test.

The store is moto's S3 server on this machine: no network lies between, so a real one adds its round trips (a page asks
for one list every 15 seconds). Its index has a row a run, drawn from eight runs as `dashboard_speed` draws them; only
the newest run lies there whole, for pages open no other. What is timed is as in `dashboard_speed`: `first` with nothing
on this machine, `cold` as a server that was started again, `cached` from then on. CPU time is that of the server that
shows pages, without moto's.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.table import Table
from rich.text import Text

from llama_workbench.harness.remote import index
from llama_workbench.harness.remote.place import Place
from llama_workbench.harness.remote.publish import publish
from llama_workbench.harness.remote.rows import row_of
from llama_workbench.harness.report.standings import write_standings
from llama_workbench.harness.report.terminal import console, show
from llama_workbench.harness.store.folder import RunFolder
from studies.dashboard_speed import Timing, measure, write_results
from tests.object_store import running_store
from tests.runs import write_run

PAGES = ("page_scripts/verdicts.py", "page_scripts/history.py")
HOME = "s3://bucket/runs"


def fill(runs: int, samples: int) -> None:
    """Write an index of `runs` runs, an hour apart, and the newest of them, of `samples` samples a run."""
    begun = datetime(2025, 1, 1, tzinfo=UTC)
    with tempfile.TemporaryDirectory() as aside:
        rows = []
        for seed in range(min(8, runs)):
            run = write_run(Path(aside) / str(seed), seed=seed, rounds=max(1, samples // 120))
            run.seal(run.read_manifest() | {"started": (begun + timedelta(hours=runs)).isoformat()})
            write_standings(run)
            rows.append(row_of(run, str(seed)))
        drawn = []
        for number in range(runs - 1):
            own = {"name": f"{number:05d}", "id": f"{number:05d}", "digest": f"{number:064x}"}
            drawn.append(rows[number % len(rows)] | own | {"started": (begun + timedelta(hours=number)).isoformat()})
        index.add(Place.at(HOME), drawn)
        publish(RunFolder(Path(aside) / "0"), f"{HOME}/newest")


def on_store(runs: int, samples: int, *, cold: int, cached: int) -> tuple[list[Timing], list[Timing]]:
    """The pages with nothing on this machine; then cold and cached."""
    with running_store(), tempfile.TemporaryDirectory() as aside:
        fill(runs, samples)
        first = []
        for page in PAGES:
            cache = Path(aside) / "cache"
            shutil.rmtree(cache, ignore_errors=True)
            first += list(measure(HOME, [page], cold=1, cached=0, cache=cache))[1:]
        return first, list(measure(HOME, PAGES, cold=cold, cached=cached, cache=cache))[1:]


def on_disk(runs: int, samples: int, *, cold: int, cached: int) -> list[Timing]:
    """The same pages on a folder of this machine."""
    with tempfile.TemporaryDirectory() as aside:
        results = Path(aside) / "results"
        write_results(results, runs=runs, samples=samples * runs)
        return list(measure(results, PAGES, cold=cold, cached=cached))[1:]


def _median(openings: Sequence[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*openings, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time pages on runs in an object store against runs on disk.")
    parser.add_argument("--runs", type=int, default=10_000, help="runs in the store (10000)")
    parser.add_argument("--against", type=int, default=200, help="runs on disk (200)")
    parser.add_argument("--samples", type=int, default=5000, help="samples of a run (5000)")
    parser.add_argument("--times", type=int, default=5, help="openings of each kind (5)")
    chosen = parser.parse_args(arguments)
    again = {"cold": chosen.times, "cached": chosen.times}
    disk = on_disk(chosen.against, chosen.samples, **again)
    first, store = on_store(chosen.runs, chosen.samples, **again)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("page", "", f"{chosen.against} on disk", f"{chosen.runs} in the store", "ratio of CPU, of wall"):
        table.add_column(Text(heading))
    for page, here, there, begun in zip(PAGES, disk, store, first, strict=True):
        for kind, old, new in (
            ("first", here.cold, begun.cold),
            ("cold", here.cold, there.cold),
            ("cached", here.cached, there.cached),
        ):
            (wall, cpu), (far_wall, far_cpu) = _median(old), _median(new)
            cells = [f"CPU {cpu:.0f} ms, wall {wall:.0f}", f"CPU {far_cpu:.0f} ms, wall {far_wall:.0f}"]
            ratios = f"{far_cpu / cpu:.2f}, {far_wall / wall:.2f}"
            table.add_row(*(Text(cell) for cell in (page, kind, *cells, ratios)))
        for timing in (here, there, begun):
            if timing.problem:
                table.add_row(Text(page), Text(f"failed: {timing.problem}"))
    show(table, console())


if __name__ == "__main__":
    main()
