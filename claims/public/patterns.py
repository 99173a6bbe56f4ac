"""Regular expressions by re, regex and re2: words, addresses in lines of a log, and a pattern that makes re go back."""

from __future__ import annotations

import random
import re

import re2
import regex

WORD = r"\w+"
ADDRESS = r"\d+\.\d+\.\d+\.\d+"
BACK = r"(?:.?){12}(?:.){12}"
"""That of google/re2#420, on texts of the length of the one there ("Hello, world!"), in which it fits once."""


def words(seed: int) -> tuple[str, str]:
    draw = random.Random(seed)
    return WORD, " ".join("".join(draw.choices("abcdefgh", k=draw.randint(2, 9))) for _ in range(500))


def address(draw: random.Random) -> str:
    return ".".join(str(draw.randrange(256)) for _ in range(4))


def lines(seed: int) -> tuple[str, str]:
    draw = random.Random(seed)
    rows = ((draw.choice(("GET", "POST")), draw.randrange(9999), address(draw)) for _ in range(200))
    text = "\n".join(f"{method} /{page} from {where}" for method, page, where in rows)
    return ADDRESS, text


def thirteen_letters(seed: int) -> tuple[str, str]:
    draw = random.Random(seed)
    return BACK, "".join(draw.choices("abcdefgh", k=13))


def by_re(pattern: str, text: str) -> list[str]:
    return re.compile(pattern).findall(text)


def by_regex(pattern: str, text: str) -> list[str]:
    return regex.compile(pattern).findall(text)


def by_re2(pattern: str, text: str) -> list[str]:
    return re2.compile(pattern).findall(text)
