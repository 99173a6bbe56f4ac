"""`workbench claims`, `workbench variants` and `workbench workloads`: what there is to measure"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llama_workbench import ROOT

from .shared import AsJson, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.harness.spec.hypotheses import Hypothesis


def claims(as_json: AsJson = False) -> None:
    """List the claims: id, who said it, what is claimed of which variant.

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
      pytest --benchmark --claims rope-3x-5x     measure one of them
    """
    from llama_workbench.harness.claims.reading import load_claims

    every = load_claims(ROOT / "claims")
    if as_json:
        print_json([claim.model_dump(mode="json") for claim in every])
        return
    blocks: list[RenderableType] = []
    for claim in every:
        blocks.append(Text.assemble((claim.id, "bold"), f" · {', '.join(claim.who)}"))
        blocks.append(Padding(Text(claim.title), (0, 0, 0, 2)))
        blocks += [Padding(Text(_describe(each), style="dim"), (0, 0, 0, 4)) for each in claim.hypothesis]
    show(Group(*blocks))


def _describe(hypothesis: Hypothesis) -> str:
    """One hypothesis on a line: its part, what is measured, what is claimed, and what it needs."""
    text = ": ".join(filter(None, (hypothesis.part, hypothesis.title(), hypothesis.describe())))
    count = len(hypothesis.workload_names())
    where = f" ({count} workload{'s' * (count != 1)})" if count else ""
    needs = "" if hypothesis.quick else ", with --all only"
    needs += f", with --device {hypothesis.device} only" if hypothesis.device else ""
    return text + where + needs


def variants(
    name: Annotated[str | None, typer.Argument(help="Show this one, axis by axis.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the variants, or show one of them axis by axis.

    \b
    --json prints a list, or with NAME one object:
      {"name", "description", "source", "factors": {axis: level}, "installed": true|false}

    \b
    Engines are optional packages. For one that is missing, the table says what to install.

    \b
    Examples:
      workbench variants
      workbench variants team005_proposal
      pytest --benchmark --compare team005_hybrid team005_proposal
      pytest --benchmark --add-variant my_model.py:build     measure your own
    """
    from llama_workbench.variants import get, missing, names

    chosen = [get(each) for each in (names() if name is None else [name])]
    if as_json:
        entries = [
            {key: getattr(each, key) for key in ("name", "description", "source")}
            | {"factors": dict(each.factors), "installed": missing(each.name) is None}
            for each in chosen
        ]
        print_json(entries if name is None else entries[0])
        return
    if name is not None:
        [variant] = chosen
        rows = table(variant.name, variant.description)
        rows.add_row("used by", Text(variant.source))
        rows.add_row("installed", Text(missing(variant.name) or "yes"))
        for axis, level in variant.factors.items():
            rows.add_row(Text(axis), Text(level))
        show(rows)
        return
    rows = table("variant", "installed", "what it is")
    for variant in chosen:
        needed = missing(variant.name) or ""
        text = f"{variant.description} [{variant.source}]" + f"; {needed}" * bool(needed)
        rows.add_row(Text(variant.name), Text("no" if needed else "yes"), Text(text))
    show(rows)


def workloads(as_json: AsJson = False) -> None:
    """List the workloads: what a model is asked to do.

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
    from llama_workbench.datasets import workloads as known

    every = known.workloads().values()
    if as_json:
        print_json([workload.model_dump(mode="json") for workload in every])
        return
    rows = table("workload", "geometry", "what is done")
    for workload in every:
        rows.add_row(Text(workload.name), Text(workload.geometry), Text(workload.description))
    show(rows)
