"""The list of the runs at a URL: the newest of them as the index has them, and the others when they are asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llama_workbench.harness.remote import index
from llama_workbench.harness.remote.place import Place, PlaceError
from llama_workbench.harness.remote.publish import listed
from llama_workbench.harness.remote.rows import Row, standings_of, summary_of
from llama_workbench.harness.store.files import MANIFEST
from llama_workbench.harness.store.schema import Standings

from .entries import BASELINES, Entry

SHOWN = 200
"""Runs that a page lists unless the reader asks for more."""

LOOK_SECONDS = 15.0
"""The store is asked for news no more often; where there is no index, twenty times less."""


@dataclass(frozen=True)
class _Home:
    """A folder of runs at a URL."""

    url: str
    runs: index.Listing


class RemoteList:
    """The runs under a URL: in its folders `runs` and `baselines`, or in the folder itself.

    note: what to know of the list, such as that there is no index; empty where all is as it should be.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.note = ""
        self._homes: Mapping[str, _Home] = {}  # by what the names of their runs begin with
        self._entries: dict[int, list[Entry]] = {}  # by how many were asked for
        self._rows: dict[str, Row] = {}
        self._next_look = 0.0
        self._lock = threading.Lock()

    def count(self) -> int:
        """How many runs there are."""
        with self._lock:
            self._look()
            return sum(len(home.runs) for home in self._homes.values())

    def entries(self, most: int = SHOWN) -> list[Entry]:
        """The newest runs, and as many of the newest baselines. Raises PlaceError where nothing was ever read."""
        with self._lock:
            self._look()
            if most not in self._entries:
                entries = [
                    self._entry(prefix, home, row)
                    for prefix, home in self._homes.items()
                    for row in home.runs.newest(most)
                ]
                newest_first = sorted(entries, key=lambda entry: (entry.summary.started, entry.name), reverse=True)
                self._entries[most] = newest_first
            return self._entries[most]

    def entry(self, name: str) -> Entry | None:
        """The run of this name, however old; None where there is none."""
        with self._lock:
            self._look()
            prefix = BASELINES if name.startswith(BASELINES) else ""
            home = self._homes.get(prefix)
            rows = home.runs.rows([name.removeprefix(prefix)]) if home else []
            return self._entry(prefix, home, rows[0]) if home and rows else None

    def standings(self, entry: Entry) -> Standings:
        """The relative times of a run that was listed. Raises PlaceError."""
        return standings_of(self._rows[entry.name], entry.url)

    def _entry(self, prefix: str, home: _Home, row: Row) -> Entry:
        name = prefix + row["name"]
        self._rows[name] = row
        return Entry(name, summary_of(row, Path(row["name"])), f"{home.url}/{row['name']}", row["digest"])

    def _look(self) -> None:
        """Ask the store what there is now. Where it does not answer, what was known before stays, with a note."""
        if time.monotonic() < self._next_look:
            return
        try:
            homes, note = self._found()
        except PlaceError as error:
            if not self._homes:
                raise
            note = f"{error} Shown is what was there before."
        else:
            now, before = ([(one.url, one.runs.state) for one in known.values()] for known in (homes, self._homes))
            if now != before:
                self._homes, self._entries = homes, {}
        self.note = note
        self._next_look = time.monotonic() + LOOK_SECONDS * (20 if note else 1)

    def _found(self) -> tuple[dict[str, _Home], str]:
        """The folders with their runs, and what to know of them."""
        place = Place.at(self.url)
        if (runs := index.read(place)) is not None:
            return {"": _Home(self.url, runs)}, ""
        if place.read([MANIFEST]):  # the URL is that of a run
            home = place.parent()
            return {"": _Home(home.url, index.Listing(index.listed(index.look(home, [place.name]))))}, ""
        urls = {"": f"{self.url}/runs", BASELINES: f"{self.url}/baselines"}
        by_prefix = {prefix: (url, *listed(url)) for prefix, url in urls.items()}
        if not any(len(runs) for _, runs, _ in by_prefix.values()):
            by_prefix = {"": (self.url, *listed(self.url))}
        notes = " ".join(note for *_, note in by_prefix.values() if note)
        return {prefix: _Home(url, runs) for prefix, (url, runs, _) in by_prefix.items()}, notes
