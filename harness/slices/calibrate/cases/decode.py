"""A decode step of a small Llama, by numpy: its next token, from the last one and a cache of those before it."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

LENGTH = 64

LAYERS, HEADS, WIDTH, HIDDEN, VOCABULARY = 2, 4, 48, 128, 160

SMALL = 1e-5

Numbers = NDArray[np.float32]
Turns = NDArray[np.complex64]


def normal(draw: np.random.Generator, rows: int, columns: int) -> Numbers:
    """Weights of a matrix."""
    return draw.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)


def turns(most: int, pairs: int) -> Turns:
    """By what each pair of numbers is turned at each position (rotary embedding), as complex numbers."""
    return np.exp(1j * np.outer(np.arange(most), 10_000.0 ** -(np.arange(pairs) / pairs))).astype(np.complex64)


LAYER = [
    {
        "joined": normal(draw, 3 * WIDTH, WIDTH),  # query, key and value
        "output": normal(draw, WIDTH, WIDTH),
        "gate": normal(draw, HIDDEN, WIDTH),
        "up": normal(draw, HIDDEN, WIDTH),
        "down": normal(draw, WIDTH, HIDDEN),
    }
    for draw in map(np.random.default_rng, range(LAYERS))
]
EMBEDDING = normal(np.random.default_rng(LAYERS), VOCABULARY, WIDTH)
ROTARY = turns(2 * LENGTH, WIDTH // HEADS // 2)


def made(draw: random.Random, length: int) -> list[Numbers]:
    """The last token's embedding [width], and keys and values [layer, head, position, width of a head]."""
    shape = (LAYERS, HEADS, length, WIDTH // HEADS)
    numbers = np.random.default_rng(draw.getrandbits(32))
    embedded = EMBEDDING[draw.randrange(VOCABULARY)]
    return [embedded, *(numbers.standard_normal(shape, dtype=np.float32) for _ in range(2))]


def normed(numbers: Numbers) -> Numbers:
    """With a mean square of one (RMS norm)."""
    return numbers / np.sqrt(np.mean(numbers * numbers) + SMALL)


def rotated(numbers: Numbers, position: int) -> Numbers:
    """A vector as seen from its position, head by head."""
    pairs = numbers.view(np.complex64).reshape(HEADS, -1)
    return (pairs * ROTARY[position]).view(np.float32)


def attended(query: Numbers, keys: Numbers, values: Numbers) -> Numbers:
    """What one token takes from all positions."""
    scores = keys @ query[:, :, None] / (WIDTH // HEADS) ** 0.5
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True) * values).sum(axis=1).reshape(-1)


def once(given: list[Numbers]) -> int:
    """The likeliest next token. Writes its keys and values into the last place of the cache."""
    state, keys, values = given
    position = keys.shape[2] - 1
    for number, weights in enumerate(LAYER):
        query, key, value = (weights["joined"] @ normed(state)).reshape(3, -1)
        keys[number, :, position] = rotated(key, position)
        values[number, :, position] = value.reshape(HEADS, -1)
        state = state + weights["output"] @ attended(rotated(query, position), keys[number], values[number])
        inner = normed(state)
        gate = weights["gate"] @ inner
        state = state + weights["down"] @ (gate / (1 + np.exp(-gate)) * (weights["up"] @ inner))
    return int((EMBEDDING @ normed(state)).argmax())
