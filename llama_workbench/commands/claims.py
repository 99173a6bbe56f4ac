"""`workbench claims`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llama_workbench import ROOT

from .shared import MODELS, AsJson, Listed, print_json, show

if TYPE_CHECKING:
    from llama_workbench.harness.spec.hypotheses import Hypothesis


LISTED = Listed(19, MODELS, {"claims": "list what is claimed, and by whom"})


def command(
    as_json: AsJson = False,
    claims_dir: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder of claim files, such as claims/public.", show_default="those that ship"
        ),
    ] = ROOT / "claims",
) -> None:
    """List the claims: id, who said it, and what is claimed about which variant.

    \b
    --json prints a list of the claims as in claims/*.toml:
      [{"id", "title", "who": [..], "source": [{"document", "section"}], "statement", "assumes": [..], "decided_by",
        "hypothesis": [{"part", "evidence", "variant", "baseline": [..], "workloads": [..], "metric",
                        "quick", "device", "faster_than_percent", "slower_than_percent", "not_faster_than_percent",
                        "ratio", "gain_percent", "same_within_percent"}]}]
    A hypothesis that is not about a time has other keys (see harness/metrics).

    \b
    Examples:
      workbench claims
      workbench claims --json | jq -r '.[].id'
      workbench claims --claims-dir claims-of-mine
      pytest --benchmark --claims rope-3x-5x     measure one of them
    """
    from llama_workbench.harness.claims.reading import load_claims

    claims = load_claims(claims_dir)
    if as_json:
        print_json([claim.model_dump(mode="json") for claim in claims])
        return
    blocks: list[RenderableType] = []
    for claim in claims:
        blocks.append(Text.assemble((claim.id, "bold"), f" · {', '.join(claim.who)}"))
        blocks.append(Padding(Text(claim.title), (0, 0, 0, 2)))
        blocks += [Padding(Text(_describe(each), style="dim"), (0, 0, 0, 4)) for each in claim.hypothesis]
    show(Group(*blocks))


def _describe(hypothesis: Hypothesis) -> str:
    """One hypothesis on a line: its part, what is measured, what is claimed, and what it needs."""
    text = ": ".join(filter(None, (hypothesis.part, hypothesis.title(), hypothesis.describe())))
    count = len(hypothesis.workload_names())
    where = f" ({count} workload{'s' * (count != 1)})" if count else ""
    needs = "" if hypothesis.quick else ", only with --all"
    if isinstance(hypothesis.quick, tuple):
        needs = f", without --all on {', '.join(hypothesis.quick)}"
    needs += f", only with --device {hypothesis.device}" if hypothesis.device else ""
    return text + where + needs
