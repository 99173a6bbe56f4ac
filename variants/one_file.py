"""A preset as a file of source to change: the module that builds it, with its settings in the function's call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .presets import presets
from .settings import Settings

NOTES = re.compile(r"^[ \t]*# phase: .*\n|[ \t]*# (phase|type): .*", re.MULTILINE)
"""Comments for the workbench's own tools."""

FUNCTION = '''

def {function}(config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int):
    """A copy of {name}: {about}."""
    return _built(config, weights, max_length=max_length{options})
'''


def cannot_copy(name: str) -> str:
    """Why a preset has no source that can be copied; empty where it has."""
    variant = presets()[name]
    if variant.engine is not None:
        return "it is an engine, and its source is not here"
    return f"torch.compile makes it; take {name.removesuffix('_compiled')}" if variant.compiled else ""


def one_file(name: str, function: str, header: str) -> str:
    """The source of a preset, whose build function is then called `function`. header: the file's docstring."""
    variant = presets()[name]
    build: Any = variant.build  # where its module is, and with which options it is called
    parts = build.module.strip(".").split(".")
    text = Path(__file__).parent.joinpath(*parts).with_suffix(".py").read_text(encoding="utf-8")
    body = NOTES.sub("", text.split('"""', 2)[2])

    def absolute(found: re.Match[str]) -> str:
        above = [*str(__package__).split("."), *parts][: -len(found[1])]
        return f"from {'.'.join([*above, *filter(None, [found[2]])])} import"

    body = re.sub(r"^from (\.+)([\w.]*) import", absolute, body, flags=re.MULTILINE)
    body = re.sub(r"^(def )?build\b", r"\1_built", body, flags=re.MULTILINE)
    options = "".join(f", {key}={_written(value)}" for key, value in build.options.items())
    added = FUNCTION.format(function=function, name=name, about=variant.description, options=options)
    return f'"""{header}"""{body.rstrip()}\n{added}'


def _written(value: Any) -> str:
    if not isinstance(value, Settings):
        return repr(value)
    usual = vars(Settings())
    return f"Settings({', '.join(f'{key}={level!r}' for key, level in vars(value).items() if level != usual[key])})"
