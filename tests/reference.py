"""The generated blocks of the pages in docs/reference: `python -m tests.reference` writes them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer
from pydantic import BaseModel

import llama_workbench
from llama_workbench import ROOT, notebook
from llama_workbench.commands.app import build
from llama_workbench.harness.claims.model import Citation, Claim, NamedCall, NamedFunction
from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.plan.options import every_option
from llama_workbench.harness.report.markdown import markdown_cell, markdown_rows, update_file
from llama_workbench.harness.spec.hypotheses import Hypothesis
from llama_workbench.harness.spec.words import SessionExit, VerbExit

PAGES = [
    ROOT / "docs" / "reference" / f"{name}.md" for name in ("exit-codes", "commands", "options", "claims", "python")
]


def blocks() -> dict[str, str]:
    """What is between the markers of the pages, by the name of the block."""
    tables: dict[str, type[BaseModel]] = {
        "claim": Claim,
        "source": Citation,
        "function": NamedFunction,
        "call": NamedCall,
        "hypothesis": Hypothesis,
    }
    return {
        "session-exits": _exits(SessionExit),
        "command-exits": _exits(VerbExit),
        "commands": "\n\n".join(_commands("workbench", typer.main.get_command(build()))),
        "options": markdown_rows(("option", "what it does"), map(_option, every_option())),
        **{f"{name}-keys": _keys(model.model_fields) for name, model in tables.items()},
        "metrics": "\n\n".join(_metrics()),
        "python": "\n\n".join(_python()),
    }


def _exits(codes: Iterable[SessionExit] | Iterable[VerbExit]) -> str:
    return markdown_rows(("exit code", "meaning"), ((str(code.value), code.meaning) for code in codes))


def _commands(name: str, command: Any) -> Iterator[str]:
    """A section for a command, and for each below it."""
    context = command.make_context(name, [], resilient_parsing=True, max_content_width=100, terminal_width=100)
    yield f"## {name}\n\n```text\n{command.get_help(context).strip()}\n```"
    for each, below in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {each}", below)


def _option(option: Any) -> tuple[str, str]:
    words = " ".join(option.metavar) if isinstance(option.metavar, tuple) else option.metavar or ""
    names = ", ".join(f"`{f'{name} {words}'.strip()}`" for name in option.names())
    return names, "<br>".join(map(markdown_cell, option.help.splitlines()))


def _keys(fields: Mapping[str, Any]) -> str:
    rows = ((f"`{key}`{'' if field.is_required() else '?'}", field.description or "") for key, field in fields.items())
    return markdown_rows(("key", "what"), ((key, markdown_cell(what)) for key, what in rows))


def _metrics() -> Iterator[str]:
    """A section for each metric, with the keys that it adds."""
    for metric in metrics():
        model: type[BaseModel] = metric.hypothesis
        own = {key: field for key, field in model.model_fields.items() if key not in Hypothesis.model_fields}
        told = inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
        yield f"### {', '.join(f'`{name}`' for name in metric.names)}\n\n{' '.join(told.split())}\n\n{_keys(own)}"


def _python() -> Iterator[str]:
    """A section for each function and class, with what each of its tables has."""
    for function in (llama_workbench.open, llama_workbench.compare, llama_workbench.timed):
        name = function.__name__
        text = f"{name}{inspect.signature(function)}\n\n{inspect.getdoc(function)}"
        yield f"## llama_workbench.{name}\n\n```text\n{text}\n```"
    for kind in (notebook.OpenRun, notebook.Compared):
        yield f"## {kind.__name__}\n\n{inspect.getdoc(kind)}"
        for name, member in vars(kind).items():
            if not name.startswith("_") and (told := inspect.getdoc(member)):
                yield f"**`{name}`**: {told}"


if __name__ == "__main__":
    for page in PAGES:
        update_file(page, blocks())
