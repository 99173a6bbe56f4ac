"""Pages of the dashboard by AppTest: opened on a link, and read as a reader sees them."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

import plotly.graph_objects as go
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from llama_workbench import ROOT
from llama_workbench.dashboard import words

APP = ROOT / "dashboard" / "app.py"

# Each page would look through all installed packages for components again: a fifth of a second.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def open_page(script: Path, monkeypatch: pytest.MonkeyPatch, results: Path, **link: str) -> AppTest:
    """`script` on the results folder, with `link` as the URL's query; a page within the app, so that its links lead
    somewhere."""
    if script.parent.name == "page_scripts":
        return open_in_app(script.stem, monkeypatch, results, **link)
    monkeypatch.setenv("WORKBENCH_RESULTS", str(results))
    monkeypatch.setattr(sys, "argv", ["app.py"])
    app = AppTest.from_file(str(script), default_timeout=60)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run()


VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "claim": ("comparison", {}),
    "breakdown": ("explore", {"show": "time"}),
    "memory": ("explore", {"show": "memory"}),
    "attribution": ("explore", {"show": "attribution"}),
    "two_runs": ("runs", {"show": "two"}),
    "history": ("runs", {"show": "history"}),
    "trust": ("runs", {"show": "trust"}),
}
"""Views of a page by the names that tests call them by: the page, and what its link says."""


UNFOLDED = dict.fromkeys(("show_times", "show_rounds", "show_time", "show_memory", "show_noise"), "open")
"""In a link: all that a page keeps folded."""


def open_in_app(name: str, monkeypatch: pytest.MonkeyPatch, results: Path | str, **link: str) -> AppTest:
    """A page of the whole app ("comparison"), or a view of one ("memory"), so that its links lead somewhere, on a
    results folder or URL."""
    name, shown = VIEWS.get(name, (name, {}))
    link = {**shown, **link}
    monkeypatch.setenv("WORKBENCH_RESULTS", str(results))
    monkeypatch.setattr(sys, "argv", ["app.py"])
    app = AppTest.from_file(str(APP), default_timeout=60)
    if name != "answer":
        app.run().switch_page(f"page_scripts/{name}.py")
    for key, value in link.items():
        app.query_params[key] = value
    return app.run()


def everything(app: AppTest) -> str:
    """All text on the page without backslashes and word joiners."""
    found = [app.markdown, app.caption, app.header, app.subheader, app.title, app.text, app.code, app.warning, app.info]
    parts = [str(element.value) for elements in found for element in elements]
    parts += [caption for radio in app.radio for caption in radio.proto.captions]
    parts += [option for widget in [*app.radio, *app.selectbox] for option in widget.options]
    parts += [table.value.to_string() for table in [*app.table, *app.dataframe]]
    parts += [element.label for element in app.expander]
    parts += [string for drawn in [*strips(app).values(), *commands(app)] for string in strings(drawn)]
    return read("\n".join(parts))


def read(text: str) -> str:
    """Markdown as it is read: without backslashes and word joiners, and with ordinary spaces."""
    return re.sub(rf"\\|{words.WORD_JOINER}", "", text).replace(words.NO_BREAK, " ")


def strips(app: AppTest) -> dict[str, Any]:
    """What the first page's component was given: "answer" and "claims"."""
    given = [json.loads(component.proto.json) for component in app.get("bidi_component")]
    return {each["kind"]: each for each in given if "kind" in each}


def commands(app: AppTest) -> list[str]:
    """The commands to copy."""
    given = [json.loads(component.proto.json) for component in app.get("bidi_component")]
    return [each["command"] for each in given if "command" in each]


def alts(app: AppTest) -> list[str]:
    """The pictures in words, in the order of the page."""
    pictures = [each for each in app.main if each.type in ("plotly_chart", "bidi_component")]
    told = [
        each.proto.alt if each.type == "plotly_chart" else json.loads(each.proto.json).get("alt") for each in pictures
    ]
    return [text for text in told if text]


def texts(figure: go.Figure) -> list[str]:
    """Every string of a figure that plotly reads as markup."""
    plain = json.loads(figure.to_json())
    return strings(
        {"data": plain["data"], "layout": {key: plain["layout"][key] for key in plain["layout"] if key != "template"}}
    )


def strings(content: Any) -> list[str]:
    """Every string in JSON."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, str):
            found.append(value)

    walk(content)
    return found


def theme() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(APP.with_name(".streamlit").joinpath("config.toml").read_text())["theme"]
    return found


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio of two colours `#rrggbb`."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
