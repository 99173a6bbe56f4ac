"""Small pieces of texts for people: lists, and hints for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """ "did you mean 'x'?", or all known names where none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(map(repr, names))
