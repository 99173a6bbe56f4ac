"""Values and texts of files that anybody may have written, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from llama_workbench.datasets.files import parse_json, parse_toml, short


@pytest.mark.parametrize(
    "value",
    [
        10**10_000,
        -(10**10_000),
        "x" * 10**6,
        "a\nb\u2028c",
        [[]] * 10**5,
        {"a": {"b": {"c": {"d": {"e": 1}}}}},
        "\ud800",
    ],
    ids=["int", "negative", "text", "lines", "list", "tables", "surrogate"],
)
def test_any_value_is_shown_in_a_short_line(value: Any) -> None:
    told = short(value)
    assert len(told) <= 100
    assert told.isprintable()
    told.encode()


def test_common_values_are_shown_as_they_are() -> None:
    for value in (1, -7, 1e-5, "silu", None, True, [1, 2], {"a": 1}):
        assert short(value) == repr(value)


def test_texts_within_bounds_are_parsed_as_the_library_does() -> None:
    assert parse_toml('a.b = 1\n[[c]]\nd = "x. y. z."') == {"a": {"b": 1}, "c": [{"d": "x. y. z."}]}
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("{")
