"""`workbench variants`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from .shared import AsJson, Failure, print_json, show, table

if TYPE_CHECKING:
    from llama_workbench.variants.presets import Variant


def command(
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
    from llama_workbench import variants

    if name is not None:
        try:
            variant = variants.get(name)
        except variants.UnknownVariant as error:
            raise Failure(str(error)) from error
        if as_json:
            print_json(_to_json(variant))
            return
        rows = table(variant.name, variant.description)
        rows.add_row("used by", Text(variant.source))
        rows.add_row("installed", Text(variants.missing(variant.name) or "yes"))
        for axis, level in variant.factors.items():
            rows.add_row(Text(axis), Text(level))
        show(rows)
        return
    if as_json:
        print_json([_to_json(variants.get(each)) for each in variants.names()])
        return
    rows = table("variant", "installed", "what it is")
    for variant in map(variants.get, variants.names()):
        missing = variants.missing(variant.name) or ""
        text = f"{variant.description} [{variant.source}]" + f"; {missing}" * bool(missing)
        rows.add_row(Text(variant.name), Text("no" if missing else "yes"), Text(text))
    show(rows)


def _to_json(variant: Variant) -> dict[str, Any]:
    from llama_workbench import variants

    facts = {key: getattr(variant, key) for key in ("name", "description", "source")}
    return {**facts, "factors": dict(variant.factors), "installed": variants.missing(variant.name) is None}
