"""Functions to calibrate with: kinds of work that code does. To add one, write its functions and a line of `CASES`.

A case is measured as a file of its own (`source_of`): its functions and what they need of this module. That file is
also written anew under other names (see `clothes`): those of functions, classes, globals, keys and attributes may
change, those of arguments and local variables not. So answers are numbers and texts that no such name shows up in.
"""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KnownWork:
    """One kind of work. made: an input of some length, from random numbers; once: the work on one input. length: of an
    input; where lengths are mixed, half as much less or more at most."""

    made: Callable[[random.Random, int], Any]
    once: Callable[[Any], object]
    length: int


def fractions(draw: random.Random, length: int) -> list[float]:
    """So many numbers between 0 and 1."""
    return [draw.random() for _ in range(length)]


def small_numbers(draw: random.Random, length: int) -> list[int]:
    """So many numbers below a hundred."""
    return draw.choices(range(100), k=length)


def numbers(draw: random.Random, length: int) -> list[int]:
    """So many numbers below a thousand."""
    return draw.choices(range(1000), k=length)


def large_numbers(draw: random.Random, length: int) -> list[int]:
    """So many numbers below a hundred thousand."""
    return draw.choices(range(100_000), k=length)


SCALE, SHIFT = 0.37, 1.25


def curved(values: list[float]) -> list[float]:
    """Each on a curve."""
    return [(value * SCALE + SHIFT) * value for value in values]


def arithmetic(values: list[float]) -> float:
    """In list comprehensions: all on the curve in one."""
    return math.fsum([value - int(value) for value in curved(values)])


DECAY, SMOOTHINGS = 0.9, 3

Numbers = NDArray[np.float64]


def array(draw: random.Random, length: int) -> Numbers:
    """So many numbers."""
    return np.random.default_rng(draw.getrandbits(32)).random(length)


def smoothed(values: Numbers) -> Numbers:
    """Each with some of its neighbour."""
    return values[1:] * DECAY + values[:-1] * (1 - DECAY)


def arrays(values: Numbers) -> float:
    """Many small calls into numpy: how far numbers lie apart once they are smoothed."""
    for _ in range(SMOOTHINGS):
        values = smoothed(values)
    return float(values.max() - values.min() + values.std())


FACTOR = 5


def number_and_length(draw: random.Random, length: int) -> list[int]:
    """What a block is filled with, and how many numbers it has."""
    return [draw.randrange(1, 50), length]


def filled(number: int, length: int) -> float:
    """The sum of a block and of what is made from it."""
    block = np.full(length, number, dtype=np.float64)
    scaled = block * FACTOR
    return float((block + scaled).sum())


def blocks(given: list[int]) -> float:
    """Blocks that the system hands over and takes back (of three at a time the C library keeps none)."""
    number, length = given
    return filled(number, length) + length


POSITIONS = 64
LAYERS, HEADS, WIDTH, HIDDEN, VOCABULARY = 2, 4, 48, 128, 160
SMALL = 1e-5

Floats = NDArray[np.float32]
Turns = NDArray[np.complex64]


def normal(draw: np.random.Generator, rows: int, columns: int) -> Floats:
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
ROTARY = turns(2 * POSITIONS, WIDTH // HEADS // 2)


def token_and_cache(draw: random.Random, length: int) -> list[Floats]:
    """The last token's embedding [width], and keys and values [layer, head, position, width of a head]."""
    shape = (LAYERS, HEADS, length, WIDTH // HEADS)
    generator = np.random.default_rng(draw.getrandbits(32))
    embedded = EMBEDDING[draw.randrange(VOCABULARY)]
    return [embedded, *(generator.standard_normal(shape, dtype=np.float32) for _ in range(2))]


def normed(values: Floats) -> Floats:
    """With a mean square of one (RMS norm)."""
    return values / np.sqrt(np.mean(values * values) + SMALL)


def rotated(values: Floats, position: int) -> Floats:
    """A vector as seen from its position, head by head."""
    pairs = values.view(np.complex64).reshape(HEADS, -1)
    return (pairs * ROTARY[position]).view(np.float32)


def attended(query: Floats, keys: Floats, values: Floats) -> Floats:
    """What one token takes from all positions."""
    scores = keys @ query[:, :, None] / (WIDTH // HEADS) ** 0.5
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True) * values).sum(axis=1).reshape(-1)


def decode(given: list[Floats]) -> int:
    """A step of a small Llama: the likeliest next token. Writes into the last place of the cache."""
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


STEP = 7


class Bead:
    """Knows the one before it and the one behind it."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.before: Bead | None = None
        self.behind: Bead | None = None


def joined(values: list[int]) -> list[Bead]:
    """A bead for each number, in a ring."""
    beads = [Bead(value) for value in values]
    for place, bead in enumerate(beads):
        bead.before = beads[place - 1]
        beads[place - 1].behind = bead
    return beads


def garbage(values: list[int]) -> int:
    """A sum along the ring, which is garbage then: the collector alone finds it."""
    bead, total = joined(values)[0], 0
    for _ in range(len(values)):
        following = bead.behind
        if following is not None:
            total += STEP * following.value - bead.value
            bead = following
    return total


FACTORS = {"width": 3, "height": 5, "depth": 7, "weight": 11, "margin": 13}


def volume(number: int) -> int:
    """Of one number."""
    return number * FACTORS["width"] + FACTORS["height"] * FACTORS["depth"]


def cost(number: int) -> int:
    """Of one number."""
    return number * FACTORS["weight"] - FACTORS["margin"]


def lookups(values: list[int]) -> int:
    """Of fixed keys in a dict: a sum over all numbers."""
    total = 0
    for value in values:
        total += volume(value) - cost(value)
    return total


RATE = 3


class Account:
    """Holds a balance."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.balance = 0
        self.bookings = 0
        self.limit = 500

    def book(self, amount: int) -> None:
        """Put an amount in, up to the limit."""
        self.balance += amount
        self.bookings += 1
        if self.balance > self.limit:
            self.settle()

    def settle(self) -> None:
        """Take out what is above the limit."""
        self.balance -= self.limit // RATE

    def state(self) -> int:
        """In one number."""
        return self.balance * self.bookings + self.number


def objects(amounts: list[int]) -> int:
    """With attributes and methods: the state of an account after these amounts."""
    account = Account(len(amounts))
    for amount in amounts:
        account.book(amount)
    return account.state()


ENTRY = re.compile(r"(\w+)=(\d+)(?:\.(\d+))?")
BASE = 7


def line(draw: random.Random, length: int) -> str:
    """A line of so many entries."""
    return ", ".join([f"k{number % 50}={number}.{number % 9}" for number in draw.choices(range(10_000), k=length)])


def value_of(entry: re.Match[str]) -> int:
    """Of one entry."""
    return int(entry[2]) * BASE + int(entry[3] or 0)


def patterns(given: str) -> int:
    """A regular expression on a line: the value of all entries."""
    return sum([value_of(entry) for entry in ENTRY.finditer(given)])


def order(number: int) -> dict[str, int]:
    """What stands in one order."""
    return {"amount": number, "price": 3, "discount": number % 7, "total": 0}


def settle(entry: dict[str, int]) -> None:
    """Write what it costs into an order."""
    entry["total"] = entry["amount"] * entry["price"] - entry["discount"]


def records(values: list[int]) -> int:
    """Small dicts that are made, changed and read: what all orders cost."""
    entries = [order(value) for value in values]
    for entry in entries:
        settle(entry)
    return sum([entry["total"] for entry in entries])


LEAST = 2


def leaf(values: list[int], low: int, high: int) -> int:
    """The sum of a few."""
    return sum(values[low:high])


def halves(values: list[int], low: int, high: int) -> int:
    """The sum of both halves, with a remainder at each step."""
    if high - low <= LEAST:
        return leaf(values, low, high)
    middle = (low + high) // 2
    return halves(values, low, middle) + halves(values, middle, high) % 10_007


def recursion(values: list[int]) -> int:
    """The sum of all, by a function that calls itself."""
    return halves(values, 0, len(values))


MODULUS = 101


def rank(number: int) -> tuple[int, int]:
    """Where a number belongs."""
    return number % MODULUS, -number


def sorting(values: list[int]) -> int:
    """By a key of one's own: the number in the middle."""
    return sorted(values, key=rank)[len(values) // 2]


LETTERS = "etaoinshr"


def two_words(draw: random.Random, length: int) -> list[str]:
    """Two words of so many letters."""
    return ["".join(draw.choices(LETTERS, k=length)) for _ in range(2)]


def next_row(above: list[int], letter: str, word: str) -> list[int]:
    """A row of the table from that above it."""
    row = [above[0] + 1]
    for place, other in enumerate(word):
        kept = above[place] + (letter != other)
        row.append(min(kept, above[place + 1] + 1, row[place] + 1))
    return row


def spelling(given: list[str]) -> int:
    """The least number of letters to change, to put in and to take away; calls of some ten milliseconds."""
    first, second = given
    row = list(range(len(second) + 1))
    for letter in first:
        row = next_row(row, letter, second)
    return row[-1]


SLOPE, LIFT = 1.5, 0.25


def lifted(number: float) -> float:
    """One number on a line."""
    return number * SLOPE + LIFT


def steps(values: list[float]) -> float:
    """A few on a few numbers, in calls of microseconds."""
    return lifted(values[-1]) - values[0]


SEPARATOR, CELL_WIDTH = "; ", 6


def cell(number: int) -> str:
    """One number in a table."""
    return f"{number:>{CELL_WIDTH}} {number % 97:x}"


def texts(values: list[int]) -> int:
    """Formatted and joined: the length of all of them in a row, in capitals."""
    return len(SEPARATOR.join([cell(value) for value in values]).upper().replace(" ", ""))


SYLLABLES = ("ka", "lo", "mi", "ne", "ru", "sa", "to", "vi")
SHORT = 5


def text(draw: random.Random, length: int) -> str:
    """A text of so many words."""
    return " ".join(map("".join, zip(*[draw.choices(SYLLABLES, k=length) for _ in range(3)], strict=True)))


def counted(given: str) -> dict[str, int]:
    """How often each word stands in a text."""
    counts: dict[str, int] = {}
    for word in given.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def words(given: str) -> int:
    """Counted in a dict: one number for all counts."""
    return sum([count * count for word, count in counted(given).items() if len(word) > SHORT])


# -- the table ---------------------------------------------------------------------------------------------------------

CASES = {
    "arithmetic": KnownWork(fractions, arithmetic, 150),
    "arrays": KnownWork(array, arrays, 2000),
    "blocks": KnownWork(number_and_length, blocks, 30_000),
    "decode": KnownWork(token_and_cache, decode, POSITIONS),
    "garbage": KnownWork(small_numbers, garbage, 240),
    "lookups": KnownWork(numbers, lookups, 100),
    "objects": KnownWork(small_numbers, objects, 160),
    "patterns": KnownWork(line, patterns, 25),
    "records": KnownWork(numbers, records, 120),
    "recursion": KnownWork(numbers, recursion, 160),
    "sorting": KnownWork(large_numbers, sorting, 150),
    "spelling": KnownWork(two_words, spelling, 40),
    "steps": KnownWork(fractions, steps, 3),
    "texts": KnownWork(large_numbers, texts, 50),
    "words": KnownWork(text, words, 120),
}


def source_of(case: KnownWork) -> str:
    """A case as a file of its own: its two functions, and below them in their words `made`, `once` and `LENGTH`."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    defined = {name: node for node in tree.body for name in defined_by(node)}
    made, once = case.made.__name__, case.once.__name__
    needed, names = [tree.body[1]], [made, once]  # the import of annotations, behind the docstring
    while names:
        node = defined.get(names.pop())
        if node is not None and node not in needed:
            needed.append(node)
            names += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    body = [node for node in tree.body if node in needed]
    return f"{ast.unparse(ast.Module(body, []))}\nmade, once, LENGTH = {made}, {once}, {case.length}\n"


def defined_by(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
