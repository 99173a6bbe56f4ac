"""What a measuring process holds and does not use, so that functions find its memory and its collector as in others."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

POOL_BYTES, LARGEST_SMALL = 1 << 14, 512
"""Python keeps small objects of one size side by side in pools of the one number of bytes, up to the other in size."""


def ballast(most: int) -> list[bytes]:
    """A block of up to so many bytes, and of each size of small objects a drawn number, up to a pool of them."""
    drawn, head = random.Random(most), sys.getsizeof(b"")
    small = (
        bytes(size - head) for size in range(48, LARGEST_SMALL, 16) for _ in range(drawn.randrange(POOL_BYTES // size))
    )
    return [bytes(most), *small]


REFERENCES, STRIDE = 4, 7919
"""Of each stand-in to others, which lie scattered: as many as an object of an interpreter has."""


def stand_ins(count: int) -> list[dict[int, Any]]:
    """So many objects that the collector walks in about the time that those of a bare interpreter take. With ours a
    function would be timed with collections that are longer, and fewer, than in a program of the user's; so ours are
    frozen. With none at all they would be shorter, and more."""
    made: list[dict[int, Any]] = [{} for _ in range(count)]
    for place, holder in enumerate(made):
        for reference in range(REFERENCES):
            holder[reference] = made[(place * STRIDE + reference) % count]
    gc.collect()
    return made
