"""`workbench claims`, `variants` and `workloads`: lists of what can be measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llama_workbench import ROOT

from .shared import MODELS, AsJson, Listed, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.harness.spec.hypotheses import Hypothesis


def list_claims(
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


def list_variants(
    name: Annotated[
        str | None, typer.Argument(help="Show this variant, choice by choice. [default: list all]", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the variants, or show one of them choice by choice.

    \b
    --json prints a list, or with NAME one object:
      {"name", "description", "source", "factors": {axis: level}, "installed": true|false}

    \b
    Engines are optional packages. If one is missing, the table says what to install.

    \b
    Examples:
      workbench variants
      workbench variants team005_proposal
      pytest --benchmark --compare team005_hybrid team005_proposal
      pytest --benchmark --add-variant my_model.py:build     measure your own
    """
    from llama_workbench import variants

    chosen = [variants.get(each) for each in (variants.names() if name is None else [name])]
    if as_json:
        entries = [
            {key: getattr(each, key) for key in ("name", "description", "source")}
            | {"factors": dict(each.factors), "installed": variants.missing(each.name) is None}
            for each in chosen
        ]
        print_json(entries if name is None else entries[0])
        return
    if name is not None:
        [variant] = chosen
        rows = table(variant.name, variant.description)
        rows.add_row("used by", Text(variant.source))
        rows.add_row("installed", Text(variants.missing(variant.name) or "yes"))
        for axis, level in variant.factors.items():
            rows.add_row(Text(axis), Text(level))
        show(rows)
        return
    rows = table("variant", "installed", "what it is")
    for variant in chosen:
        missing = variants.missing(variant.name) or ""
        text = f"{variant.description} [{variant.source}]" + f"; {missing}" * bool(missing)
        rows.add_row(Text(variant.name), Text("no" if missing else "yes"), Text(text))
    show(rows)


def list_workloads(
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="List the workloads of this file. [default: those that ship]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the workloads: what models are timed on.

    \b
    --json prints a list of the workloads as in datasets/workloads.toml, families expanded:
      [{"name", "kind": "prefill"|"decode"|"generate"|"component", "geometry", "tokens", "new_tokens", "chunk",
        "batch", "context", "dtype", "threads", "lengths": "repeated"|"distinct"|"trace", "trace", "length_divisor",
        "length_limit", "component", "description"}]

    \b
    Examples:
      workbench workloads
      pytest --benchmark --workloads prefill-15m-t128,decode-15m-c64
    """
    from llama_workbench.datasets.workloads import WORKLOADS_FILE, workloads

    every = workloads(file or WORKLOADS_FILE).values()
    if as_json:
        print_json([workload.model_dump(mode="json") for workload in every])
        return
    rows = table("workload", "model shape", "what is done")
    for workload in every:
        rows.add_row(Text(workload.name), Text(workload.geometry), Text(workload.description))
    show(rows)


COMMANDS = {
    "claims": (list_claims, Listed(19, MODELS, {"claims": "list what is claimed, and by whom"})),
    "variants": (list_variants, Listed(20, MODELS, {"variants team006_after": "show one variant, choice by choice"})),
    "workloads": (list_workloads, Listed(21, MODELS, {"workloads": "list what models are timed on"})),
}
