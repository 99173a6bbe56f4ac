"""A run as one row of an index, and back: its summary, and its relative times by the rules of standings.json."""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..report.standings import read_standings
from ..spec.words import Word
from ..store.errors import RESTORE, RunError, RunWarning
from ..store.files import MANIFEST, SAMPLES, STANDINGS, SUMS, VERDICTS
from ..store.folder import RunFolder, RunSummary, describe
from ..store.forms import Fault, check, plain
from ..store.index_schema import COLUMNS, TEXT
from ..store.schema import STANDINGS as FORM
from ..store.schema import Standings
from .place import PlaceError

Row = dict[str, Any]
"""The columns of an index by name, as Python values."""

NEEDED = (MANIFEST, SUMS, VERDICTS, STANDINGS)
"""The files of a run that its row is made of, where it has all of them."""

_OF_NO_USE = ("load_average",)  # differs from run to run, and no rule looks at it


def row_of(run: RunFolder, name: str, *, light: bool = False) -> Row:
    """The row of a run that lies in a folder of this machine, under the name that it has beside the index.

    A damaged run has a row too, which says what is wrong. Relative times come from standings.json, else from the
    samples; with `light`, of a folder that has no more than NEEDED, from standings.json alone.
    """
    try:
        summary, problem = describe(run, light=light), ""
    except OSError as error:
        summary, problem = RunSummary(run.path, name, "damaged"), error.strerror or str(error)
    row = _empty(name) | {
        "digest": digest_of(run.path),
        **{key: getattr(summary, key) for key in ("id", "status", "mode", "started", "machine", "commit", "noise")},
        "problem": problem or summary.problem or "",
        "workloads": list(summary.workloads),
        "claims": [dict(zip(("claim", "part", "verdict"), each, strict=True)) for each in summary.claims],
    }
    if row["problem"]:
        return row
    try:
        standings = _stored(run) if light else _standings(run)
    except RunError as error:
        return row | {"problem": error.brief, "status": "damaged"}
    return row if standings is None else row | _columns_of(standings)


def gone(name: str) -> Row:
    """The row of a run that was removed."""
    return _empty(name) | {"gone": True}


def digest_of(folder: Path) -> str:
    """SHA-256 of run.json and its checksums together, in hexadecimal digits: another one for each state of a run."""
    digest = hashlib.sha256()
    for name in (MANIFEST, SUMS):
        with contextlib.suppress(OSError):
            digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def summary_of(row: Mapping[str, Any], path: Path) -> RunSummary:
    """What a list shows of a run. path: where the run will lie once it is fetched."""
    judged = (each for each in row["claims"] if each["verdict"] in {*Word})
    claims = tuple((each["claim"], each["part"], Word(each["verdict"])) for each in judged)
    return RunSummary(
        path=path,
        workloads=tuple(row["workloads"]),
        verdicts=Counter(verdict for _, _, verdict in claims),
        problem=row["problem"] or None,
        claims=claims,
        **{key: row[key] for key in ("id", "status", "mode", "started", "machine", "commit", "noise")},
    )


def standings_of(row: Mapping[str, Any], where: str) -> Standings:
    """The relative times of a run. Raises RunError where the row has none, or is not in the form of standings.json."""
    if not row["environment"]:
        raise PlaceError(where, "the index has no times of this run", "Write it anew: workbench index URL")
    try:
        content = {
            "format": Standings.format,
            "name": row["id"],
            **{key: row[key] for key in ("started", "status", "noise", "fired")},
            "environment": json.loads(row["environment"]),
            "workloads": {
                result["name"]: {key: result[key] for key in ("checkpoint", "reference", "bias")}
                | {"workload": json.loads(result["workload"])}
                for result in row["results"]
            },
            "subjects": [(each["workload"], each["variant"]) for each in row["subjects"]],
            "rows": row["times"],
            "dropped": [(each["workload"], each["variant"], each["reason"]) for each in row["dropped"]],
        }
        check(FORM, content)
    except (Fault, ValueError) as fault:
        raise PlaceError(where, f"the index's row of this run is damaged ({fault})", RESTORE) from fault
    standings: Standings = FORM.validate_python(content)
    return standings


def _empty(name: str) -> Row:
    values: Row = {key: "" if kind is TEXT else [] for key, (kind, _) in COLUMNS.items()}
    return values | {"name": name, "gone": False, "noted": datetime.now(UTC).isoformat(timespec="microseconds")}


def _columns_of(standings: Standings) -> Row:
    content = plain(standings)
    environment = {key: value for key, value in content["environment"].items() if key not in _OF_NO_USE}
    return {
        "environment": json.dumps(environment, sort_keys=True),
        "results": [
            {**result, "name": name, "workload": json.dumps(result["workload"], sort_keys=True)}
            for name, result in content["workloads"].items()
        ],
        "subjects": [{"workload": workload, "variant": variant} for workload, variant in content["subjects"]],
        "times": content["rows"],
        "dropped": [{"workload": key[0], "variant": key[1], "reason": key[2]} for key in content["dropped"]],
        "fired": content["fired"],
    }


def _standings(run: RunFolder) -> Standings | None:
    if not run.finished_rounds():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # who judges or reads the run itself is warned
        return read_standings(run)


def _stored(run: RunFolder) -> Standings | None:
    """standings.json where it was made from the samples that run.json lists; None where it was not, or is not there."""
    if not (run.path / STANDINGS).exists():
        return None
    stored: Standings = FORM.validate_python(run.read_json(STANDINGS))
    sealed = run.sums.known()
    fits = sealed is not None and stored.made_from == {key: sealed[key] for key in (MANIFEST, SAMPLES) if key in sealed}
    return stored if fits and stored.format == Standings.format else None
