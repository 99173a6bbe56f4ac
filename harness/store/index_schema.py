"""The index of a folder of many runs: what its Parquet files hold, one row a run.

It repeats what lists and histories ask of each run, so that they need not open thousands of folders. `digest` says of
which run.json a row was made: a row never stands for another state of its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What stands in a column: its type in SQL, and in words."""

    sql: str
    words: str


def _record(**fields: Kind) -> str:
    return f"STRUCT({', '.join(f'{name} {kind.sql}' for name, kind in fields.items())})"


def _records(**fields: Kind) -> Kind:
    return Kind(f"{_record(**fields)}[]", f"list of records: {', '.join(f'`{name}`' for name in fields)}")


TEXT, _TEXTS, _FLAG = Kind("VARCHAR", "text"), Kind("VARCHAR[]", "list of text"), Kind("BOOLEAN", "true or false")
_NUMBER, _COUNT = Kind("DOUBLE", "number"), Kind("BIGINT", "whole number")
_MEAN = Kind(_record(centre=_NUMBER, error=_NUMBER, freedom=_NUMBER), "record")

COLUMNS: Mapping[str, tuple[Kind, str]] = {
    "name": (TEXT, "the run's folder, beside the folder of the index"),
    "digest": (TEXT, "SHA-256 of its run.json, all of it"),
    "noted": (TEXT, "when the row was written, ISO 8601, UTC; of two rows of a run the later one counts"),
    "gone": (_FLAG, "whether the run was removed; nothing else in the row counts then"),
    "id": (TEXT, "its own name"),
    "status": (TEXT, "as in run.json, or damaged"),
    "mode": (TEXT, "as in run.json"),
    "started": (TEXT, "as in run.json"),
    "machine": (TEXT, "CPU, cores, threads and versions in one line"),
    "commit": (TEXT, "of the code"),
    "noise": (TEXT, "what its controls showed, in one line"),
    "problem": (TEXT, "why it cannot be read; empty where it can"),
    "workloads": (_TEXTS, "those that it timed"),
    "claims": (_records(claim=TEXT, part=TEXT, verdict=TEXT), "its verdicts"),
    "environment": (TEXT, "as in standings.json, without load average, as JSON"),
    "results": (
        _records(name=TEXT, workload=TEXT, checkpoint=TEXT, reference=TEXT, bias=_NUMBER),
        "the workloads of standings.json; `workload` is JSON",
    ),
    "subjects": (_records(workload=TEXT, variant=TEXT), "the variants that have a number"),
    "times": (
        _records(
            workload=TEXT, variant=TEXT, clock=TEXT, log_ratio=_NUMBER, low=_NUMBER, high=_NUMBER,
            rounds=_COUNT, unstable=_FLAG, faults=_NUMBER, over_lives=_MEAN,
        ),
        "the rows of standings.json: relative times, with null for an open end",
    ),
    "dropped": (_records(workload=TEXT, variant=TEXT, reason=TEXT), "the variants without a number, and why"),
    "fired": (_TEXTS, "the controls that fired"),
}  # fmt: skip
