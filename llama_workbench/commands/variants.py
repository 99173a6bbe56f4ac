"""`workbench variants`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from .shared import MODELS, AsJson, Listed, print_json, show, table

LISTED = Listed(20, MODELS, {"variants team006_after": "show one variant, choice by choice"})


def command(
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
