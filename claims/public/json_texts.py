"""JSON texts of three sizes, and what reads and writes them."""

from __future__ import annotations

import json
import random

import orjson
from pydantic import BaseModel


class Entry(BaseModel):
    id: int
    name: str
    tags: list[str]
    score: float
    active: bool


class Page(BaseModel):
    number: int
    entries: list[Entry]


def page(seed: int, entries: int) -> dict[str, object]:
    draw = random.Random(seed)
    return {
        "number": draw.randrange(1000),
        "entries": [
            {
                "id": draw.randrange(1 << 40),
                "name": "".join(draw.choices("abcdefghijklmnop", k=12)),
                "tags": ["".join(draw.choices("qrstuvw", k=5)) for _ in range(3)],
                "score": draw.random(),
                "active": draw.random() < 0.5,
            }
            for _ in range(entries)
        ],
    }


def object_of_1(seed: int) -> dict[str, object]:
    return page(seed, 1)


def object_of_30(seed: int) -> dict[str, object]:
    return page(seed, 30)


def object_of_1000(seed: int) -> dict[str, object]:
    return page(seed, 1000)


def text_of_1(seed: int) -> bytes:
    return json.dumps(page(seed, 1)).encode()


def text_of_30(seed: int) -> bytes:
    return json.dumps(page(seed, 30)).encode()


def text_of_1000(seed: int) -> bytes:
    return json.dumps(page(seed, 1000)).encode()


def in_two_steps(text: bytes) -> Page:
    return Page.model_validate(json.loads(text))


def in_one_step(text: bytes) -> Page:
    return Page.model_validate_json(text)


def in_two_steps_by_orjson(text: bytes) -> Page:
    return Page.model_validate(orjson.loads(text))


def same_content(got: bytes, expected: bytes) -> bool:
    """Some floats are written in two ways, such as 5e-05 and 0.00005."""
    return bool(json.loads(got) == json.loads(expected))


def loads_by_json(text: bytes) -> object:
    return json.loads(text)


def loads_by_orjson(text: bytes) -> object:
    return orjson.loads(text)


def dumps_by_json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def dumps_by_orjson(content: object) -> bytes:
    return orjson.dumps(content)
