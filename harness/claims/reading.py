"""Claims: `claims/*.toml`, one claim a file, checked so strictly that a typo cannot change a verdict.

CONTRIBUTING.md shows such a file. Whether there is a variant or a workload of that name is the plan's question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from llama_workbench import ROOT
from llama_workbench.datasets.faults import MOST_FAULTS
from llama_workbench.datasets.files import short
from llama_workbench.datasets.geometries import DataError, read_toml
from llama_workbench.datasets.texts import shortened
from llama_workbench.variants.spelling import did_you_mean

from ..metrics.registry import names
from ..store.files import CLAIMS
from .faults import ClaimError, noted_by_runs, problems_of
from .model import Claim

if TYPE_CHECKING:
    from ..store.folder import RunFolder

DISPUTE_FILE = "dispute.toml"
"""In a folder of claims what is asked about them, and no claim; `dispute` reads it."""

MOST_ENTRIES = 100
"""Of a list: hypotheses of a claim, workloads of a hypothesis. The claims that ship have nine hypotheses at most."""


def load_claims(folder: Path) -> list[Claim]:
    """All claims of `folder`, in order of file names. Raises ClaimError with every fault of every file in it. A shipped
    claim may ask for a metric that was deleted, as a stored one may."""
    outlive = Path(folder).absolute().is_relative_to(ROOT / "claims")
    try:
        paths = sorted(path for path in Path(folder).glob("*.toml") if path.name != DISPUTE_FILE)
    except OSError as error:
        raise ClaimError([f"{shortened(str(folder))}: cannot be read ({error.strerror})"]) from error
    if not paths:
        raise ClaimError([f"{folder}: no claims here: expected one or more .toml files"])
    claims: list[Claim] = []
    problems: list[str] = []
    first: dict[str, Path] = {}
    for path in paths:
        try:
            claim = read_claim(path, outlives=outlive)
        except ClaimError as error:
            problems += error.problems
            continue
        if claim.id in first:
            problems.append(f'{path}: id = "{claim.id}": {first[claim.id].name} has it already; an id is given once')
        else:
            first[claim.id] = path
            claims.append(claim)
    if problems:
        raise ClaimError(problems)
    return claims


def read_claim(path: Path, *, outlives: bool = False) -> Claim:
    """Read one file. Raises ClaimError that names the file, and the line and column or the key at fault. If the claim
    `outlives` metrics, a metric that is not there is no fault (see `stored_claims`)."""
    try:
        table = read_toml(path)
    except DataError as error:
        raise ClaimError([str(error)]) from error
    noted = noted_by_runs(table, str(path))
    try:
        claim = check_claim(_with_gone(table) if outlives else table, str(path))
    except ClaimError as error:
        raise ClaimError([*noted, *error.problems]) from error
    if noted:
        raise ClaimError(noted)
    return claim.read_from(path)


def stored_claims(run: RunFolder) -> list[Claim]:
    """The claims as they stood when the run was made, whatever metrics there were then. Raises ClaimError where they
    are none, RunError where claims.json cannot be read."""
    path = run.path / CLAIMS
    return [check_claim(_with_gone(table), f"{path}[{index}]") for index, table in enumerate(run.records(CLAIMS))]


def _with_gone(table: Any) -> Any:
    """A claim whose parts of a metric that this version lacks say just that: a claim outlives metrics."""
    if not isinstance(table, Mapping) or not isinstance(parts := table.get("hypothesis"), list):
        return table
    return {**table, "hypothesis": [_or_gone(part) for part in parts]}


def _or_gone(part: Any) -> Any:
    metric = part.get("metric") if isinstance(part, Mapping) else None
    if not isinstance(metric, str) or metric in names():
        return part
    kept = {key: part[key] for key in ("part", "who") if key in part}
    return {**kept, "metric": "none", "reason": f'this version has no metric "{shortened(metric)}"'}


def check_claim(table: Any, where: str) -> Claim:
    """Check one claim that was read already; `where` stands at the start of each problem of a ClaimError."""
    if not isinstance(table, Mapping):
        raise ClaimError([f"{where} = {short(table)}, expected a table of keys"])
    if long := [f"{where}: {shortened(place)}: {found}" for place, found in _long_lists(table)]:
        raise ClaimError(long[:MOST_FAULTS])
    try:
        return Claim.model_validate(table)
    except ValidationError as error:
        raise ClaimError(problems_of(error, table, where)) from error


def _long_lists(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lists of more than `MOST_ENTRIES`: each workload goes with each baseline, of each hypothesis."""
    for key, value in table.items():
        if not isinstance(value, list):
            continue
        if len(value) > MOST_ENTRIES:
            yield key, f"has {len(value):,} entries, expected at most {MOST_ENTRIES}"
            continue
        for index, inner in enumerate(value):
            if isinstance(inner, Mapping):
                yield from ((f"{key}[{index}].{place}", found) for place, found in _long_lists(inner))


def select(claims: Sequence[Claim], names: Sequence[str] | None) -> list[Claim]:
    """The claims of these ids, in the order of `claims`; all of them for None or an empty list.

    Raises ClaimError for an id that does not exist, with the nearest one that does.
    """
    if not names:
        return list(claims)
    ids = [claim.id for claim in claims]
    unknown = [name for name in dict.fromkeys(names) if name not in ids]
    if unknown:
        hints = {name: f"; {hint}" if (hint := did_you_mean(name, ids)) else "" for name in unknown}
        raise ClaimError(f"no claim {name!r}{hints[name]} (claims: {', '.join(ids)})" for name in unknown)
    return [claim for claim in claims if claim.id in set(names)]
