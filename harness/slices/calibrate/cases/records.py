"""Small dicts that are made, changed and read."""

from __future__ import annotations

import random

LENGTH = 120


def made(draw: random.Random, length: int) -> list[int]:
    """So many numbers."""
    return draw.choices(range(1000), k=length)


def order(number: int) -> dict[str, int]:
    """What stands in one order."""
    return {"amount": number, "price": 3, "discount": number % 7, "total": 0}


def settle(entry: dict[str, int]) -> None:
    """Write what it costs into an order."""
    entry["total"] = entry["amount"] * entry["price"] - entry["discount"]


def once(numbers: list[int]) -> int:
    """What all orders cost."""
    entries = [order(number) for number in numbers]
    for entry in entries:
        settle(entry)
    return sum([entry["total"] for entry in entries])
