"""The frozen yardstick of functions: never edit this file (a test holds its hash).

Saved runs of functions are compared as ratios to it, so it must stay the same work for ever: what an interpreter does
all day with whole numbers, lists, dicts and text, for about a millisecond. Nothing is imported, and no dict has keys of
text: their hashes are drawn anew in each process, and the yardstick itself would differ from one to the next.
"""

from __future__ import annotations

LENGTH, PASSES = 320, 8


def inputs(seed: int) -> list[int]:
    """Numbers below 2 ** 31 that follow from a seed."""
    numbers, state = [], seed % 2147483647 or 1
    for _ in range(LENGTH):
        state = state * 48271 % 2147483647
        numbers.append(state)
    return numbers


def work(numbers: list[int]) -> list[int]:
    """Whole numbers that every part of the work goes into."""
    answer = []
    for number in range(PASSES):
        some = numbers[number:] + numbers[:number]
        answer += [_counted(some), _written(some), _climbed(some), *_columns(some)]
    return answer


def _counted(numbers: list[int]) -> int:
    """The key that occurs most often."""
    counts: dict[int, int] = {}
    for number in numbers:
        key = number % 97
        if key in counts:
            counts[key] += 1
        else:
            counts[key] = 1
    return sorted(counts, key=lambda key: (-counts[key], key))[0]


def _written(numbers: list[int]) -> int:
    """A sum over the numbers after they were text."""
    text = ",".join([str(number) for number in numbers])
    total = 0
    for part in text.split(","):
        total = (total * 31 + int(part)) % 1000003
    return total


def _climbed(numbers: list[int]) -> int:
    """How far their last digits climb."""
    climbed, last = 0, 0
    for number in numbers:
        digit = number & 7
        if digit > last:
            climbed += digit - last
        last = digit
    return climbed


def _columns(numbers: list[int]) -> list[int]:
    """Sums over a table of them."""
    rows = [numbers[start : start + 16] for start in range(0, LENGTH, 16)]
    return [sum(column) % 1009 for column in zip(*rows, strict=True)]
