"""Puts claims of stored runs as `claims/` has them now, where their metric has gone, where a document's own limit
is theirs now (`margin`), or where a part counted for a team that did not say it: `python -m studies.claims_renewed RUN
...`; then `workbench judge RUN` gives their verdicts.
What a run had of a claim stays: its parts, and for each of them its workloads. Of a claim whose parts are others now,
all of today's are taken.

On a run that was renewed it changes nothing, which a test holds of the committed runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llama_workbench import ROOT
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.store.files import CLAIMS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain

BOOKED_ANEW = ("mask-caching-10-30-overall", "mask-time-halved", "own-rules", "rope-3x-5x")
"""Of which a part counted for a team that did not say it."""

RENEWED = ("claims-inflated-20-50x", "layers-add-up", "weight-loading-bottleneck")
AS_THE_RUN_HAD = ("part", "quick", "workloads", "left_out")


def renewed(stored: Sequence[Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The claims of a run, those of RENEWED and those with a margin as they are now. now: id → the claim as a run would
    store it today."""
    claims = [_renewed(claim, now[claim["id"]]) if _is_renewed(now.get(claim["id"])) else claim for claim in stored]
    return [_booked_anew(claim, now[claim["id"]]) if claim["id"] in BOOKED_ANEW else claim for claim in claims]


def _is_renewed(today: Mapping[str, Any] | None) -> bool:
    return today is not None and (
        today["id"] in RENEWED or any("margin" in hypothesis for hypothesis in today["hypothesis"])
    )


def _renewed(claim: Mapping[str, Any], today: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = []
    for hypothesis in today["hypothesis"]:
        had = next((each for each in claim["hypothesis"] if _is_same_part(each, hypothesis)), None)
        if had is not None:
            as_had = {key: had[key] for key in AS_THE_RUN_HAD if key in had}
            parts.append({key: value for key, value in hypothesis.items() if key not in AS_THE_RUN_HAD or key in had})
            parts[-1] |= as_had
    return {**today, "source": claim["source"], "hypothesis": parts or today["hypothesis"]}


def _booked_anew(claim: Mapping[str, Any], today: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, said by whom it is said today."""
    parts = []
    for had in claim["hypothesis"]:
        same: Mapping[str, Any] = next((each for each in today["hypothesis"] if _is_same_part(had, each)), {})
        parts.append(had | ({"who": same["who"]} if "who" in same else {}))
    return {**claim, "who": today["who"], "hypothesis": parts}


def _is_same_part(had: Mapping[str, Any], today: Mapping[str, Any]) -> bool:
    """By its name; a run of earlier days may have none where it had one part alone."""
    return had["part"] == today.get("part") if "part" in had else had.get("variant") == today.get("variant")


def claims_of_today() -> dict[str, Mapping[str, Any]]:
    """By id, as a run stores them."""
    return {claim.id: plain(claim.stored()) for claim in load_claims(ROOT / "claims")}


def main(*runs: str) -> None:
    """Write the claims of these runs anew."""
    now = claims_of_today()
    for run in runs:
        folder = RunFolder(Path(run))
        folder.write_json(CLAIMS, renewed(folder.records(CLAIMS), now))
        folder.renew(CLAIMS)


if __name__ == "__main__":
    main(*sys.argv[1:])
