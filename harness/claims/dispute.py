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
    for shown, names in dispute.measured_by.items():
        for name in names:
            if name not in parts:
                yield f"measured_by.{shown} names {name!r}, expected a claim here{_hint(name, parts)}"


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
