"""Plain words and numbers for the pages, and the two escapes that keep a results file from being markup.

A results file may hold anything, since variants and claims come from outside. Streamlit's Markdown and plotly's
labels both interpret markup, each in its own way, so every string out of a file passes `markdown` or `label`,
or goes to an element that shows text as it is (`st.text`, `st.code`, `st.dataframe`, `st.selectbox`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llama_workbench.harness.report.text import byte_unit as byte_unit
from llama_workbench.harness.report.text import effect_text, measured_text, one_text_line, short, size_text
from llama_workbench.harness.spec.words import LOOKS as LOOKS
from llama_workbench.harness.spec.words import Appearance as Appearance
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.verdict_schema import Effect

WORD_JOINER = "\u2060"  # has no width and breaks no line
NO_BREAK = "\u00a0"  # a space that breaks no line
UNIT = re.compile(r"(?<=[\d×]) (?=(?:%|ms|µs|s|min|h|KiB|MiB|GiB)(?:[^\w%]|$))")
"""A space between a number and its unit."""


def markdown(text: object) -> str:
    """`text` so that Streamlit's Markdown shows it character by character, on one line.

    Backslashes stop CommonMark, HTML, LaTeX and `:red[...]`. Emoji and icon short codes (`:tada:`), links without
    brackets and `->` are replaced in the text *after* it was parsed, where no backslash is left: a word joiner
    inside the pattern stops those. A number and its unit stay on one line.
    """
    line = UNIT.sub(NO_BREAK, " ".join(str(text).split()))
    line = re.sub(r"([:@])(?=\S)", rf"\1{WORD_JOINER}", line)
    line = re.sub(r"(?i)\b(www)(?=\.)", rf"\1{WORD_JOINER}", line)
    line = re.sub(r"([-<>=~])(?=[-<>=])", rf"\1{WORD_JOINER}", line)
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", line)


clip = one_text_line
"""Text on one line of at most so many characters; an ellipsis stands for what was cut off."""


def capital(text: str) -> str:
    """The same with a capital letter in front."""
    return f"{text[:1].upper()}{text[1:]}"


def label(text: object, limit: int = 400) -> str:
    """`text` for plotly, which reads a few HTML tags, `%{...}` and `$...$` in every label and hover text."""
    return html.escape(one_text_line(text, limit)).replace("$", "&#36;").replace("%{", "%&#123;")


def ratio(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval, "1.021× [1.012, 1.031]", as the terminal writes it."""
    return "not measured" if value is None else measured_text(value, low, high)


def effect(row: Effect) -> str:
    """An effect with its interval."""
    return effect_text(row) if row.unit else ratio(row.value, row.lower, row.upper)


def told(row: Effect) -> str:
    """The same of a value; says why there is none, or no interval."""
    if row.value is None:
        return "not measured"
    if row.lower is None or row.upper is None:
        return f"{short(row.value)} {row.unit}, too few rounds for an interval ({row.rounds})"
    return effect(row)


def percent(share: float) -> str:
    """0.99 → "99 %", with four digits where it needs them."""
    return f"{100 * share:.4g} %"


def size(count: float | None) -> str:
    """A number of bytes in binary units, three significant digits."""
    return "not measured" if count is None else size_text(count)


def milliseconds(value_ns: float | None) -> str:
    """A duration in milliseconds, three significant digits; microseconds below 0.1 ms."""
    if value_ns is None:
        return "not measured"
    if value_ns < 1e5:
        return f"{value_ns / 1e3:.3g} µs"
    return f"{value_ns / 1e6:.3g} ms" if value_ns < 1e9 else f"{value_ns / 1e6:,.0f} ms"


def one_line(value: Any) -> str:
    """A value of a JSON file in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {one_line(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(one_line, value))
    return {True: "yes", False: "no", None: ""}[value] if value is None or isinstance(value, bool) else str(value)


def problem(error: RunError) -> str:
    """What is wrong with a file of a run, and what to do."""
    return f"{error.path.name}: {error.problem}. {error.fix}"


def listing(names: Sequence[str]) -> str:
    """Names as in a sentence: "a, b and c"; with semicolons between names that have commas."""
    if len(names) < 2:
        return names[0] if names else "none"
    if any(", " in name for name in names):
        return f"{'; '.join(names[:-1])}; and {names[-1]}"
    return f"{', '.join(names[:-1])} and {names[-1]}"


MOST_NAMED = 6


def some(names: Sequence[str], between: str = ", ", most: int = MOST_NAMED) -> str:
    """The first names, and how many more there are."""
    listed = between.join(clip(name, 80) for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed
