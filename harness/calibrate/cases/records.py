"""Small dicts that are made, changed and read."""

from __future__ import annotations

import random

REPEATS = 20


def fixed(seed: int) -> list[int]:
    """A hundred and twenty numbers."""
    return random.Random(seed).choices(range(1000), k=120)


def mixed(seed: int) -> list[int]:
    """Sixty to 180 numbers."""
    draw = random.Random(seed)
    return draw.choices(range(1000), k=draw.randint(60, 180))


def order(number: int) -> dict[str, int]:
    """What stands in one order."""
    return {"amount": number, "price": 3, "discount": number % 7, "total": 0}


def settle(entry: dict[str, int]) -> None:
    """Write what it costs into an order."""
    entry["total"] = entry["amount"] * entry["price"] - entry["discount"]


def work(numbers: list[int]) -> int:
    """What all orders cost."""
    for _ in range(REPEATS):
        entries = [order(number) for number in numbers]
        for entry in entries:
            settle(entry)
        answer = sum([entry["total"] for entry in entries])
    return answer
