"""What to say about a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, quote: str = "'", most: int = 1) -> str:
    """A question with the nearest of the known names, `most` at the most; else `otherwise`. Case does not count."""
    names = {each.lower(): each for each in known if each}
    near = [f"{quote}{names[each]}{quote}" for each in get_close_matches(name.lower(), names, n=most, cutoff=0.55)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise
