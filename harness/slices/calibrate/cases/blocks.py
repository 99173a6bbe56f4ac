"""Blocks that the system hands over, page by page, and takes back: of three at a time the C library keeps none."""

from __future__ import annotations

import random

import numpy as np

LENGTH = 30_000

START = 5


def made(draw: random.Random, length: int) -> list[int]:
    """What a block is filled with, and how many numbers it has."""
    return [draw.randrange(1, 50), length]


def filled(number: int, length: int) -> float:
    """The sum of a block and of what is made from it."""
    block = np.full(length, number, dtype=np.float64)
    scaled = block * START
    return float((block + scaled).sum())


def once(given: list[int]) -> float:
    """Of some numbers more than the block is long."""
    number, length = given
    return filled(number, length) + length
