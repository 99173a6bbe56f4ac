"""Damaged files, by the thousand: what a user may hand in, or find broken, must end in one line and never in a crash.

A `Kind` is one kind of file: how to write a good one, and how the workbench reads it. `try_all` damages copies of it
with a fixed seed and sorts what comes of each. `python -m tests.fuzz --cases 2000` prints the table for the docs.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]

SECONDS = 10.0
"""Reading a damaged file may take this long (a good one takes milliseconds); anything longer counts as a hang."""


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    write: makes a good one inside an empty folder and returns its path. read: reads it as the workbench does and
    returns what a user would be shown, comparable by `==`. errors: what `read` may raise; the text is one line that
    names the file. damages: ways to damage its bytes. silent_is_failure: whether a damaged file that is read without
    an error or a warning must show what the good one shows (true for files with a checksum; a checkpoint's
    configuration may be another one and nobody can tell).
    """

    name: str
    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    damages: tuple[Damage, ...]
    silent_is_failure: bool = True


@dataclass
class Tally:
    """What came of the tries of one kind. `failed`: the try's number, and what went wrong."""

    kind: str
    tried: int = 0
    refused: int = 0
    warned: int = 0
    unchanged: int = 0
    accepted: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)


def try_all(kind: Kind, folder: Path, *, cases: int, seed: int = 0) -> Tally:
    """Damage the file of a kind `cases` times; the same seed gives the same damage."""
    tally = Tally(kind.name)
    good = folder / "good"
    good.mkdir(parents=True)
    file = kind.write(good)
    expected = kind.read(file)
    for number in range(cases):
        rng = random.Random(f"{kind.name} {seed} {number}")
        place = folder / f"case-{number}"
        shutil.copytree(good, place)
        damaged = place / file.relative_to(good)
        content = file.read_bytes()
        damaged.write_bytes(rng.choice(kind.damages)(content, rng))
        tally.tried += 1
        if damaged.read_bytes() == content:
            tally.unchanged += 1
        else:
            _try_one(kind, damaged, expected, number, tally)
        shutil.rmtree(place)
    return tally


def _try_one(kind: Kind, file: Path, expected: Any, number: int, tally: Tally) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with _no_longer_than(SECONDS):
                shown = kind.read(file)
        except kind.errors as error:
            text = str(error)
            if "\n" in text or len(text) > 1000:
                tally.failed.append((number, f"not one line: {text[:200]!r}"))
            else:
                tally.refused += 1
            return
        except TimeoutError:
            tally.failed.append((number, f"hangs: more than {SECONDS:g} s"))
            return
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            tally.failed.append((number, f"{type(error).__name__} at {where}: {str(error)[:120]}"))
            return
    if told:
        tally.warned += 1
    elif shown == expected:
        tally.unchanged += 1
    elif kind.silent_is_failure:
        tally.failed.append((number, "reads as something else, and nothing says so"))
    else:
        tally.accepted += 1


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- ways to damage a file ---


def cut(content: bytes, rng: random.Random) -> bytes:
    """A file that was not written to its end."""
    return content[: rng.randrange(len(content) + 1)]


def flip(content: bytes, rng: random.Random) -> bytes:
    """One to four bits that turned over."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def drop(content: bytes, rng: random.Random) -> bytes:
    """A stretch of bytes that is gone."""
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randint(1, 64) :]


def overwrite(content: bytes, rng: random.Random) -> bytes:
    """A stretch of random bytes, or of zeros, in the middle."""
    start = rng.randrange(len(content))
    count = min(rng.randint(1, 64), len(content) - start)
    filling = bytes(count) if rng.random() < 0.5 else rng.randbytes(count)
    return content[:start] + filling + content[start + count :]


def digit(content: bytes, rng: random.Random) -> bytes:
    """One digit that is another one: what no parser can see."""
    places = [index for index, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return content
    place = rng.choice(places)
    other = rng.choice([value for value in range(48, 58) if value != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


BYTES: tuple[Damage, ...] = (cut, flip, drop, overwrite)

EXTREMES: tuple[Any, ...] = (
    None, True, 0, -1, 1e24, -1e24, 5e-324, 10**9, 2**31, 2**63, 2**64, 10**400, 1e999, float("nan"), "", "x",
    "x" * 300, "../../etc", "\x00", "NaN", [], {}, [[]], [0] * 1000, [[]] * 1000, {"x": {"x": {}}},
)  # fmt: skip
"""Values that a field may be given; one more, nested 5,000 deep, is written as text by `json_value`."""


def json_value(content: bytes, rng: random.Random) -> bytes:
    """One value of a JSON text that is an extreme one, is missing, or is there under another name."""
    tree = json.loads(content)
    places = list(_places(tree))
    if not places:
        return content
    parent, key = rng.choice(places)
    how = rng.random()
    if how < 0.1:
        del parent[key]
    elif how < 0.15 and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    elif how < 0.2:
        marker = "deep-deep-deep"
        parent[key] = marker
        return json.dumps(tree).replace(f'"{marker}"', "[" * 5000 + "]" * 5000).encode()
    else:
        parent[key] = copy.deepcopy(rng.choice(EXTREMES))
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys: Any = ()
    if isinstance(tree, dict):
        keys = list(tree)
    elif isinstance(tree, list):
        keys = range(len(tree))
    for key in keys:
        yield tree, key
        yield from _places(tree[key])
