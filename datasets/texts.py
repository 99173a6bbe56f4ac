"""Texts of others in one line of ours. Of the standard library alone, and of Python 3.9: measuring processes use it."""

from __future__ import annotations


def shortened(text: str, longest: int = 200) -> str:
    """A text in one line without control characters, its middle left out where it is longer than `longest`."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 10 * longest])
    return line if len(line) <= longest else f"{line[: longest - 23]}...{line[-20:]}"
