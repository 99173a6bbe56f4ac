"""`dispute.toml` of a folder of claims: which questions are asked about them, and by which rules the teams decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from llama_workbench import ROOT
from llama_workbench.datasets.faults import faults
from llama_workbench.datasets.geometries import DataError, read_toml
from llama_workbench.variants.spelling import did_you_mean

from ..spec.dispute import Dispute
from .faults import ClaimError
from .model import Claim
from .reading import DISPUTE_FILE, load_claims

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
    for table in ("question", "headline"):
        for index, row in enumerate(getattr(dispute, table)):
            if row.claim not in parts:
                yield f"{table}[{index}].claim = {row.claim!r}, expected a claim here{_hint(row.claim, parts)}"
            elif row.part not in parts[row.claim]:
                known = [part for part in parts[row.claim] if part]
                expected = f"one of {', '.join(known)}" if known else "none: this claim has one part without a label"
                yield f"{table}[{index}].part = {row.part!r}, expected {expected}{_hint(row.part or '', known)}"
    if (ladder := dispute.ladder) and ladder.whole not in parts.get(ladder.claim, ()):
        steps = [part for part in parts.get(ladder.claim, ()) if part]
        named = f"ladder names {ladder.claim!r}, part {ladder.whole!r}"
        yield f"{named}, expected a claim here and a part of it{_hint(ladder.whole, steps)}"
    for shown, names in dispute.measured_by.items():
        for name in names:
            if name not in parts:
                yield f"measured_by.{shown} names {name!r}, expected a claim here{_hint(name, parts)}"


def _hint(name: str, names: Iterable[str]) -> str:
    hint = did_you_mean(name, names)
    return f"; {hint}" if hint else ""
