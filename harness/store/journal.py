"""The journal of a run that has not ended: one line for each finished round, and its checksum at the end of the line.

Only a line that was cut off by `kill -9` can be lost.
"""

from __future__ import annotations

import json
import mmap
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from llama_workbench.datasets.files import short

from ..spec.sample import Round, Sample
from ..spec.table import Table
from . import parquet
from .files import RunError, RunWarning, as_run_error

ROUND = ["workload", "process", "round"]
_LINE_KEYS = {*ROUND, "samples", "crc"}

Key = tuple[str, int, int]
"""(workload, process, round)"""


def append(path: Path, record: Round) -> None:
    """Add one finished round: one line, handed to the kernel before this returns.

    On a full disk the part of the line that fitted is taken back, so that the journal stays whole. Raises RunError, and
    ValueError for a round that could not be read back.
    """
    line = line_of(record)
    if problem := _problem(line):
        raise ValueError(f"not a round: {problem}")
    text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
    content = text[:-1] + _crc(text) + b"\n"
    with (
        as_run_error(path, "cannot append a round ({}); the rounds before it are safe"),
        open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b", buffering=0) as file,
    ):
        end = file.seek(_end_of_last_line(file.fileno()))
        try:
            rest = memoryview(content)
            while rest:  # a write to a nearly full disk may take only a part
                rest = rest[file.write(rest) :]
        except OSError:
            file.truncate(end)
            raise
        # Only now: a half line that a killed run left behind may have been longer than the new line.
        file.truncate(end + len(content))


def line_of(record: Round) -> dict[str, Any]:
    """A round as it lies in the journal, but for the checksum."""
    return dict(zip([*ROUND, "samples"], [*record[:3], list(map(list, record.samples))], strict=True))


def read(path: Path) -> tuple[Table, bool]:
    """Its rounds in the columns of samples.parquet, and whether its last line is whole. Raises RunError."""
    columns: dict[str, list[Any]] = {name: [] for name in parquet.COLUMNS}
    with as_run_error(path):
        lines = path.read_bytes().split(b"\n")
    rest = lines.pop()
    if rest:
        warnings.warn(f"{path}: the last line was cut off and is left out", RunWarning, stacklevel=3)
    for number, line in ((number, line) for number, line in enumerate(lines, start=1) if line.strip()):
        try:
            record = json.loads(line)
            problem = _problem(record) or _crc_problem(line)
        except (ValueError, RecursionError):
            problem = "not JSON"
        if problem:
            fix = f"Delete line {number}: each line is one round of its own."
            raise RunError(path, f"line {number} is damaged ({problem})", fix)
        samples = record["samples"]
        for name in ROUND:
            columns[name] += [record[name]] * len(samples)
        for name, column in zip(Sample._fields, zip(*samples, strict=True), strict=bool(samples)):
            columns[name] += column
    try:
        return parquet.checked_samples(parquet.table_of_columns(parquet.COLUMNS, columns), path), not rest
    except OverflowError as error:
        raise RunError(path, f"a number is out of range ({error})", "Measure again.") from error


def merged(fresh: Table, earlier_file: Path) -> Table:
    """The rounds of a journal, and those that an earlier samples.parquet has beside them.

    Mostly there are none: the file is a snapshot of the same journal. Only where a finished run was taken up again are
    there others. A damaged file is left out with a warning.
    """
    try:
        earlier = parquet.read_samples(earlier_file)
    except RunError as error:
        warnings.warn(f"{error}; its journal samples.jsonl was read instead", RunWarning, stacklevel=4)
        return fresh
    if not len(fresh):
        return earlier
    others = rounds(earlier) - rounds(fresh)
    if not others:
        return fresh
    return earlier.take(np.array([key in others for key in earlier.select(ROUND).rows()])).and_then(fresh)


def rounds(table: Table) -> set[Key]:
    """The rounds that have samples here."""
    return set(table.distinct(*ROUND))


def warn_of_lost_rounds(path: Path, table: Table, counted: Mapping[str, int]) -> None:
    """Warn where run.json, which is written after the samples, counted more rounds of a workload than there are."""
    have = Counter(workload for workload, _, _ in rounds(table))
    for name, number in counted.items():
        if number > have[name]:
            warnings.warn(
                f"{path}: {have[name]} rounds of {name}, and run.json counted {number}: "
                "some were lost. Restore the file from a copy, or go on with what is left.",
                RunWarning,
                stacklevel=4,
            )


def _end_of_last_line(descriptor: int) -> int:
    """Offset just behind the last newline: beyond it lies only a line that a killed run did not finish."""
    if not os.fstat(descriptor).st_size:
        return 0
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(b"\n") + 1


INTEGER: tuple[type, str] = (int, "a whole number")


def _problem(record: Any) -> str | None:
    """What is wrong with a line of the journal; None for a good one."""
    if not isinstance(record, dict):
        return "not an object"
    if unknown := record.keys() - _LINE_KEYS:
        return f"unknown key {short(sorted(unknown)[0])}"
    kinds = {"workload": (str, "a name"), "process": INTEGER, "round": INTEGER, "samples": (list, "a list")}
    for key, (kind, word) in kinds.items():
        if type(record.get(key)) is not kind:
            return f'"{key}" is not {word}'
    samples = record["samples"]
    if not all(isinstance(row, list) and len(row) == len(Sample._fields) for row in samples):
        return f"a sample is not [{', '.join(Sample._fields)}]"
    # By columns, because a journal of a long run has a million numbers.
    for name, column in zip(Sample._fields, zip(*samples, strict=True), strict=bool(samples)):
        kind, word = kinds["workload"] if name == "variant" else INTEGER
        if set(map(type, column)) != {kind}:
            return f"a sample has a {name} that is not {word}"
    return None


def _crc(text: bytes) -> bytes:
    """The end of a line, in place of the last brace of `text`: it shows a digit that changed."""
    return b',"crc":"%08x"}' % zlib.crc32(text)


def _crc_problem(line: bytes) -> str | None:
    """What is wrong with the checksum of a line."""
    end = len(_crc(b""))
    return None if line[-end:] == _crc(line[:-end] + b"}") else "its checksum is missing or does not fit"
