"""Claims: `claims/*.toml`, one claim a file, checked so strictly that a typo cannot change a verdict.

CONTRIBUTING.md shows such a file. Whether there is a variant or a workload of that name is the plan's question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError

from llama_workbench import ROOT
from llama_workbench.datasets.files import MOST_FAULTS, faults, short, shortened
from llama_workbench.datasets.geometries import DataError, Text, read_toml
from llama_workbench.variants.spelling import did_you_mean

from ..metrics.registry import names
from ..spec.dispute import Dispute
from ..store.files import CLAIMS
from .model import Citation, Claim, ClaimError, noted_by_runs, problems_of

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
    read = []
    for part in parts:
        metric = part.get("metric") if isinstance(part, Mapping) else None
        if isinstance(metric, str) and metric not in names():
            kept = {key: part[key] for key in ("part", "who") if key in part}
            part = {**kept, "metric": "none", "reason": f'this version has no metric "{shortened(metric)}"'}
        read.append(part)
    return {**table, "hypothesis": read}


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

    Raises ClaimError for an id that does not exist, with the nearest one that does."""
    if not names:
        return list(claims)
    ids = [claim.id for claim in claims]
    if unknown := [name for name in dict.fromkeys(names) if name not in ids]:
        raise ClaimError(f"no claim {name!r}{_hint(name, ids)} (claims: {', '.join(ids)})" for name in unknown)
    return [claim for claim in claims if claim.id in set(names)]


# `dispute.toml` of a folder of claims: which questions are asked about them, and by which rules the teams decide.


SHIPPED = ROOT / "claims"


def load_dispute(folder: Path = SHIPPED, claims: Sequence[Claim] | None = None) -> Dispute:
    """What the folder says beside its claims; the empty dispute where it says nothing. claims: those of the folder,
    where they were read already. Raises ClaimError that names the file, the key and what was expected."""
    path = Path(folder) / DISPUTE_FILE
    if not path.is_file():
        return Dispute()
    try:
        table = read_toml(path)
        dispute = Dispute.model_validate(table)
    except DataError as error:
        raise ClaimError([str(error)]) from error
    except ValidationError as error:
        raise ClaimError(f"{path}: {fault}" for fault in faults(error, table, Dispute)) from error
    if problems := list(_unknown(dispute, load_claims(folder) if claims is None else claims)):
        raise ClaimError(f"{path}: {problem}" for problem in problems)
    return dispute


def load_folder(folder: Path) -> tuple[list[Claim], Dispute]:
    """The claims of a folder and what is asked about them. Raises ClaimError."""
    claims = load_claims(folder)
    return claims, load_dispute(folder, claims)


def _unknown(dispute: Dispute, claims: Sequence[Claim]) -> Iterator[str]:
    """Claims and parts that are named and not there."""
    parts = {claim.id: [hypothesis.part for hypothesis in claim.hypothesis] for claim in claims}
    for where, claim, part in _asked(dispute):
        if claim not in parts:
            yield f"{where}.claim = {claim!r}, expected a claim here{_hint(claim, parts)}"
        elif part not in parts[claim]:
            known = [label for label in parts[claim] if label]
            expected = f"one of {', '.join(known)}" if known else "none: this claim has one part without a label"
            yield f"{where}.part = {part!r}, expected {expected}{_hint(part or '', known)}"
    if (ladder := dispute.ladder) and ladder.whole not in parts.get(ladder.claim, ()):
        steps = [part for part in parts.get(ladder.claim, ()) if part]
        named = f"ladder names {ladder.claim!r}, part {ladder.whole!r}"
        yield f"{named}, expected a claim here and a part of it{_hint(ladder.whole, steps)}"
    for key, part_names in dispute.measured_by.items():
        for name in part_names:
            if name not in parts:
                yield f"measured_by.{key} names {name!r}, expected a claim here{_hint(name, parts)}"


def _asked(dispute: Dispute) -> Iterator[tuple[str, str, str | None]]:
    """Each place that names a claim and a part of it."""
    for index, question in enumerate(dispute.question):
        yield f"question[{index}]", question.claim, question.part
        for place, beside in enumerate(question.beside):
            if beside.claim is not None:
                yield f"question[{index}].beside[{place}]", beside.claim, beside.part
    for index, row in enumerate(dispute.headline):
        yield f"headline[{index}]", row.claim, row.part


def _hint(name: str, names: Iterable[str]) -> str:
    hint = did_you_mean(name, names)
    return f"; {hint}" if hint else ""


# What the dispute published of its own measurements, from `datasets/published.toml`, to be shown beside ours.
# Importing this module does not import torch.


PUBLISHED_FILE = ROOT / "datasets" / "published.toml"


class Figure(BaseModel):
    """One published time, in microseconds a call: `bench` is its name there, `workload` ours that does the same."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    workload: Text
    bench: Text
    microseconds: PositiveFloat
    interval: Annotated[list[PositiveFloat], Field(min_length=2, max_length=2)] | None = None
    source: Citation


class Portion(BaseModel):
    """One line of the dispute's table of shares: what it calls it, our phases that do the same, and both figures."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    line: Text
    phases: Annotated[list[Text], Field(min_length=1)]
    percent: Annotated[float, Field(gt=0, le=100)]
    milliseconds: PositiveFloat
    source: Citation


def published() -> dict[str, Figure]:
    """Figures by workload, in the file's order."""
    return {row["workload"]: Figure.model_validate(row) for row in read_toml(PUBLISHED_FILE)["figure"]}


def published_shares() -> tuple[Portion, ...]:
    """The lines of the dispute's table of shares, in its order."""
    return tuple(map(Portion.model_validate, read_toml(PUBLISHED_FILE)["share"]))
