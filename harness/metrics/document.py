"""Prints docs/reference/file-format.md.

python -m llama_workbench.harness.metrics.document > docs/reference/file-format.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..spec.sample import Column, Sample, columns, sample_columns
from ..store import files
from ..store.forms import DataFile, JsonFile
from .registry import declared_files

# -- the page on the file format ---------------------------------------------------------------------------------------

INTRODUCTION = """\
# The files of a run

`python -m llama_workbench.harness.metrics.document` writes this page from the models that read and write the files.

A run is one folder. `run.json` says what was measured and how; the samples lie in `samples.parquet`. All else is
computed from the samples or comes from the run's passes. During a run, each finished round is one line of
`samples.jsonl`; the end of the run turns them into `samples.parquet`. JSON files are UTF-8; null stands for a number
that is not there. A key with `?` may be missing. Readers ignore keys that they do not know.

When a run has ended, `SHA256SUMS` holds the SHA-256 of every other file (`sha256sum --check SHA256SUMS` compares
them), and a file that changed since is refused.
Version 1 is the only one so far; a reader refuses other versions and names the fix.

A fleet, which is a run of several machines, is a folder whose `machines/NAME/` is such a run each. At its top lie
`run.json` with `"mode": "fleet"`, `claims.json`, `verdicts.json` over all machines, and `machines.json`; no samples.
"""


def document(declared: Iterable[DataFile]) -> str:
    """The whole page; declared: the files of the passes."""
    parts = [INTRODUCTION]
    passes = list(declared)
    forms: dict[str, Any] = {**files.FORMS, **{file: file.form for file in passes if isinstance(file, JsonFile)}}
    for name, form in forms.items():
        schema = form.json_schema()
        parts.append(f"## {name}\n\n{_whole(schema)}\n")
        parts += _models(schema)
    parts.append(f"## {files.SAMPLES}\n\n{Sample.__doc__} One row is one sample.\n")
    fields = ", ".join(f"`{name}`" for name in Sample._fields)
    parts += [
        _columns(sample_columns()),
        f"## {files.JOURNAL}\n\nOne line of JSON for each finished round: `workload`, `process`, `round`, `samples` "
        f"and `crc`. A sample is a list: {fields}. `crc` is the CRC-32 of the line before it, with a closing brace.\n",
    ]
    for file in passes:
        if not isinstance(file, JsonFile):
            parts += [f"## {file}\n\n{file.row.__doc__}\n", _columns(columns(file.row))]
    parts += [
        "## profiles/**/*.folded\n\nSampled stacks: one line a stack, frames from the outermost in, and a count.\n",
        f"## {files.SUMS}\n\nOne line for each other file: its SHA-256, two spaces and its name.\n",
    ]
    return "\n".join(parts) + "\n"


def _whole(schema: Mapping[str, Any]) -> str:
    kind = _type(schema, schema.get("$defs", {}))
    return f"One object: {schema['title']}." if kind == "object" else f"A {kind}. {_first(schema)}".strip()


def _models(schema: Mapping[str, Any]) -> Iterator[str]:
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
    print(document(declared_files()), end="")
