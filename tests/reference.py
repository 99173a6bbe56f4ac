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
from llama_workbench.harness.measure.profiling import profilers
from llama_workbench.harness.metrics.registry import metrics
from llama_workbench.harness.plan.options import every_option
from llama_workbench.harness.report.markdown import markdown_cell, markdown_rows, update_file
from llama_workbench.harness.spec.hypotheses import Hypothesis
from llama_workbench.harness.spec.sample import Column, Sample, columns, sample_columns
from llama_workbench.harness.spec.words import SessionExit, VerbExit
from llama_workbench.harness.store import files
from llama_workbench.harness.store.forms import DataFile, JsonFile
from llama_workbench.harness.store.passes import CAUSES

PAGES = [
    ROOT / "docs" / "reference" / f"{name}.md"
    for name in ("exit-codes", "commands", "options", "claims", "python", "file-format")
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
        "files": "\n".join(_files()),
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


def declared_files() -> list[DataFile]:
    """Every file that a pass declares, by name."""
    files = [file for metric in metrics() for file in (*metric.files, *metric.files_beside)]
    return sorted({*files, CAUSES, *(profiler.file for profiler in profilers())})


def _files() -> Iterator[str]:
    """A section for each file of a run, with its keys or columns."""
    passes = declared_files()
    forms: dict[str, Any] = {**files.FORMS, **{file: file.form for file in passes if isinstance(file, JsonFile)}}
    for name, form in forms.items():
        schema = form.json_schema()
        yield f"## {name}\n\n{_whole(schema)}\n"
        yield from _model_tables(schema)
    fields = ", ".join(f"`{name}`" for name in Sample._fields)
    yield f"## {files.SAMPLES}\n\n{Sample.__doc__} One row is one sample.\n"
    yield _columns(sample_columns())
    yield (
        f"## {files.JOURNAL}\n\nOne line of JSON for each finished round: `workload`, `process`, `round`, `samples` "
        f"and `crc`. A sample is a list: {fields}. `crc` is the CRC-32 of the line before it, with a closing brace.\n"
    )
    for file in passes:
        if not isinstance(file, JsonFile):
            yield f"## {file}\n\n{file.row.__doc__}\n"
            yield _columns(columns(file.row))
    yield "## profiles/**/*.folded\n\nSampled stacks: one line a stack, frames from the outermost in, and a count.\n"
    yield f"## {files.SUMS}\n\nOne line for each other file: its SHA-256, two spaces and its name.\n"


def _whole(schema: Mapping[str, Any]) -> str:
    kind = _type(schema, schema.get("$defs", {}))
    return f"One object: {schema['title']}." if kind == "object" else f"A {kind}. {_first(schema)}".strip()


def _model_tables(schema: Mapping[str, Any]) -> Iterator[str]:
    """A table for each model, in the order in which they are mentioned."""
    models = schema.get("$defs", {})
    waiting = [schema, *(models[name] for name in _mentioned(schema.get("items", {})))]
    done: list[str] = []
    while waiting:
        model = waiting.pop(0)
        name = model.get("title", "")
        if name not in done and "properties" in model:
            done.append(name)
            yield f"**{name}**: {_first(model)}\n"
            yield "| key | type | what |\n|---|---|---|"
            for key, field in model["properties"].items():
                may_lack = "" if key in model.get("required", ()) else "?"
                yield f"| `{key}`{may_lack} | {_type(field, models)} | {_what(field, models)} |"
            yield ""
        waiting += [models[name] for name in _mentioned(model.get("properties", {}))]


def _first(model: Mapping[str, Any]) -> str:
    """The first paragraph of a model's description, on one line."""
    return " ".join(model.get("description", "").partition("\n\n")[0].split())


def _what(field: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """The field's own description, else that of the model it holds."""
    text = field.get("description") or _first(models[_mentioned(field)[0]]).partition(".")[0]
    return str(text).replace("|", "\\|")


def _mentioned(schema: Any) -> list[str]:
    """The models that a schema refers to."""
    if isinstance(schema, dict):
        own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
        return own + [name for value in schema.values() for name in _mentioned(value)]
    return [name for item in schema for name in _mentioned(item)] if isinstance(schema, list) else []


def _type(schema: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        model = models[schema["$ref"].rpartition("/")[2]]
        return model["title"] if "properties" in model else _type(model, models)
    if "anyOf" in schema:
        return " or ".join(_type(each, models) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    match schema.get("type", "any"):
        case "array" if "prefixItems" in schema:
            names = (item.get("title", "").lower().replace(" ", "_") for item in schema["prefixItems"])
            kinds = (_type(item, models) for item in schema["prefixItems"])
            return f"[{', '.join(name or kind for name, kind in zip(names, kinds, strict=True))}]"
        case "array":
            return f"list of {_type(schema['items'], models)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'], models)}"
        case kind:
            return {"integer": "whole number", "string": "text", "boolean": "true or false"}.get(kind, kind)


def _columns(table: Mapping[str, Column]) -> str:
    rows = [f"| `{name}` | {'text' if kind == 'name' else kind} | {says} |" for name, (kind, says) in table.items()]
    return "\n".join(["| column | type | what |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    for page in PAGES:
        update_file(page, blocks())
