"""Pictures for the documents: `python -m studies.pictures` draws pages of the dashboard, and a terminal, from committed
runs into docs/images/, with `pictures.json`: the size of each, its digest, and that of the verdicts that it shows.

Needs Chromium and playwright, as the tests of the dashboard do.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from llama_workbench import ROOT
from llama_workbench.harness.report.comparison import screens
from llama_workbench.harness.report.standings import evidence_of
from llama_workbench.harness.report.terminal import screen_report
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from tests.dashboard_browser import FLAGS, installed_chromium, serving

FOLDER = ROOT / "docs" / "images"
LISTED = FOLDER / "pictures.json"
BASELINES = ROOT / "results" / "baselines"
SIZE = (1280, 860)
DRAWN_MS = 4000
"""How long a page may take to draw its figures once its script has run."""


@dataclass(frozen=True)
class Shot:
    """A page of the dashboard with a committed run."""

    run: str
    page: str
    query: str = ""


SHOTS = {
    "answer": Shot("reference", ""),
    "claim": Shot("reference", "comparison", "&claim=refactor-2x-3x"),
    "comparison": Shot("first-comparison", ""),
    "time": Shot("reference", "explore", "&show=time"),
    "trust": Shot("reference", "runs", "&show=trust"),
}
TERMINAL, TERMINAL_RUN = "terminal", "first-comparison"


def shown_digest(run: str) -> str:
    """Of the verdicts that a picture of this run shows."""
    return hashlib.sha256((BASELINES / run / VERDICTS).read_bytes()).hexdigest()


def entry(file: Path, run: str) -> dict[str, object]:
    """What `pictures.json` says of a picture."""
    content = file.read_bytes()
    return {
        "run": run,
        "shows": shown_digest(run),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def terminal(file: Path) -> None:
    """What `workbench show` prints, as SVG."""
    folder = RunFolder(BASELINES / TERMINAL_RUN)
    asked = [verdict for verdict in folder.read(VERDICTS) if verdict.is_comparison]
    [screen] = screens(folder, asked, evidence_of(folder, folder.manifest()))
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    console.print(screen_report(screen, 100))
    file.write_text(console.export_svg(title=f"workbench show {TERMINAL_RUN}"), encoding="utf-8")


def main() -> None:
    """Draw them all."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    entries: dict[str, dict[str, object]] = {}
    terminal(FOLDER / f"{TERMINAL}.svg")
    entries[f"{TERMINAL}.svg"] = entry(FOLDER / f"{TERMINAL}.svg", TERMINAL_RUN)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        for run in {shot.run for shot in SHOTS.values()}:
            shutil.copytree(BASELINES / run, Path(name) / "baselines" / run)
        browser = playwright.chromium.launch(executable_path=installed_chromium(), args=list(FLAGS))
        with serving(Path(name)) as address:
            for title, shot in SHOTS.items():
                page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
                page.goto(f"{address}{shot.page}?run=baselines/{shot.run}{shot.query}")
                page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=120_000)
                page.wait_for_timeout(DRAWN_MS)
                file = FOLDER / f"{title}.png"
                page.screenshot(path=file)
                entries[file.name] = entry(file, shot.run)
                page.close()
        browser.close()
    LISTED.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
