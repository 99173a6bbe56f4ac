"""The index of a folder of many runs: what its Parquet files hold, one row a run.

It repeats what lists and histories ask of each run, so that they need not open thousands of folders. `digest` says of
which run.json a row was made: a row never stands for another state of its run.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_MEAN = pa.struct([pa.field(name, pa.float64()) for name in ("centre", "error", "freedom")])


def _records(**fields: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field(name, kind) for name, kind in fields.items()]))


COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "name": (_TEXT, "the run's folder, beside the folder of the index"),
    "digest": (_TEXT, "SHA-256 of its run.json, all of it"),
    "noted": (_TEXT, "when the row was written, ISO 8601, UTC; of two rows of a run the later one counts"),
    "gone": (pa.bool_(), "whether the run was removed; nothing else in the row counts then"),
    "id": (_TEXT, "its own name"),
    "status": (_TEXT, "as in run.json, or damaged"),
    "mode": (_TEXT, "as in run.json"),
    "started": (_TEXT, "as in run.json"),
    "machine": (_TEXT, "CPU, cores, threads and versions in one line"),
    "commit": (_TEXT, "of the code"),
    "noise": (_TEXT, "what its controls showed, in one line"),
    "problem": (_TEXT, "why it cannot be read; empty where it can"),
    "workloads": (_TEXTS, "those that it timed"),
    "claims": (_records(claim=_TEXT, part=_TEXT, verdict=_TEXT), "its verdicts"),
    "environment": (_TEXT, "as in standings.json, without load average, as JSON"),
    "results": (
        _records(name=_TEXT, workload=_TEXT, checkpoint=_TEXT, reference=_TEXT, bias=pa.float64()),
        "the workloads of standings.json; `workload` is JSON",
    ),
    "subjects": (_records(workload=_TEXT, variant=_TEXT), "the variants that have a number"),
    "times": (
        _records(
            workload=_TEXT, variant=_TEXT, clock=_TEXT, log_ratio=pa.float64(), low=pa.float64(), high=pa.float64(),
            rounds=pa.int64(), unstable=pa.bool_(), faults=pa.float64(), over_lives=_MEAN,
        ),
        "the rows of standings.json: relative times, with null for an open end",
    ),
    "dropped": (_records(workload=_TEXT, variant=_TEXT, reason=_TEXT), "the variants without a number, and why"),
    "fired": (_TEXTS, "the controls that fired"),
}  # fmt: skip

SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
