"""A dataclass with and without slots: objects that are made, and whose fields are read."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass
class Plain:
    left: int
    right: int
    name: str
    share: float


@dataclass(slots=True)
class Slotted:
    left: int
    right: int
    name: str
    share: float


Fields = tuple[int, int, str, float]


def fields(seed: int) -> list[Fields]:
    draw = random.Random(seed)
    return [(draw.randrange(999), draw.randrange(999), draw.choice("abc"), draw.random()) for _ in range(500)]


def plain_made(rows: list[Fields]) -> int:
    return len([Plain(*row) for row in rows])


def slotted_made(rows: list[Fields]) -> int:
    return len([Slotted(*row) for row in rows])


def plain_objects(seed: int) -> tuple[list[Plain], list[Slotted]]:
    rows = fields(seed)
    return [Plain(*row) for row in rows], [Slotted(*row) for row in rows]


def plain_read(plain: list[Plain], slotted: list[Slotted]) -> float:
    return sum([each.left + each.right + each.share for each in plain])


def slotted_read(plain: list[Plain], slotted: list[Slotted]) -> float:
    return sum([each.left + each.right + each.share for each in slotted])
