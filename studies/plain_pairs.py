"""Pairs of functions whose difference lies in what they ask of the collector, the allocator or the system; and what
plain Python says of them: each side alone in a fresh process, with nothing of ours in it.

The first half is a module of functions, which is also what the workbench is given; the second is the runner.
"""

from __future__ import annotations

import copy
import functools
import gc
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

# -- the pairs: `first` and `second` of each take what `given` makes ---------------------------------------------------


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y


class Ring:
    def __init__(self):
        self.itself = self


def small(seed):
    return (15_000 + seed % 40,)


def shape_20(seed):
    return ((2000 + seed % 8, 2500),)


def shape_40(seed):
    return ((4000 + seed % 8, 2500),)


def filled(shape):
    import numpy as np

    return np.full(shape, 0, dtype=np.float32)


def zeroed(shape):
    import numpy as np

    return np.zeros(shape, dtype=np.float32)


def added_up(shape):
    import numpy as np

    one = np.ones(shape, dtype=np.float32)
    return one + one + one


def added_in_place(shape):
    import numpy as np

    one = np.ones(shape, dtype=np.float32)
    total = one + one
    total += one
    return total


def points(count):
    made = [Point(number, 1) for number in range(count)]
    return sum(point.x for point in made)


def columns(count):
    xs, ys = [], []
    for number in range(count):
        xs.append(number)
        ys.append(1)
    return sum(xs)


def rows(count):
    return len([{"number": number, "values": [number]} for number in range(count)])


def _unwatched(function, count):
    gc.disable()
    try:
        return function(count)
    finally:
        gc.enable()


def rows_unwatched(count):
    return _unwatched(rows, count)


def rows_then_kept(count):
    """The collector is off from the first call on, as in a program that turns it off when it starts."""
    gc.disable()
    return rows(count)


def dicts(count):
    return len([{"a": number, "b": number} for number in range(count)])


def tuples(count):
    return len([(number, number) for number in range(count)])


def rings(count):
    for _ in range(count // 4):
        Ring()
    return count


def chains(count):
    for _ in range(count // 4):
        Point(None, None)
    return count


def lists_of_lists(count):
    return sum(map(sum, [[number, number] for number in range(count)]))


def flat_array(count):
    from array import array

    return sum(array("q", range(count))) + sum(array("q", range(count)))


def added_text(count):
    text = ""
    for number in range(count):
        text = f"{text}{number % 10}" if number % 64 == 0 else text + str(number % 10)
    return len(text)


def joined_text(count):
    return len("".join([str(number % 10) for number in range(count)]))


_KEPT: dict[int, list[int]] = {}


def remembers(count):
    _KEPT.clear()
    for number in range(count):
        _KEPT[number] = [number]
    return len(_KEPT)


def recomputes(count):
    found = 0
    for number in range(count):
        found += len([number])
    return found


def _server():
    live = [[number] for number in range(400_000)]
    return lambda count: len([[number] for number in range(count // 5)]) + len(live)


def server():
    return _server()


def frozen_server():
    handler = _server()
    gc.collect()
    gc.freeze()
    return handler


def in_children(count):
    """Two child processes, one after the other."""
    for _ in range(2):
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    return count


def in_a_child(count):
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    return count


def waits_thrice(count):
    for _ in range(3):
        time.sleep(0.001)
    return count


def waits_once(count):
    time.sleep(0.001)
    return count


_SQUARES: dict[int, int] = {}


def looked_up(count):
    """What was worked out once is kept for all later calls."""
    for number in range(count):
        if number not in _SQUARES:
            _SQUARES[number] = number * number
    return sum(_SQUARES[number] for number in range(count))


def worked_out(count):
    return sum(number * number for number in range(count))


def deep_copies(count):
    """Copies that the collector watches: containers in containers."""
    made = [[[number], [number]] for number in range(count // 40)]
    return len(copy.deepcopy(made))


def shallow_copies(count):
    made = [[[number], [number]] for number in range(count // 40)]
    return len([[[*inner] for inner in outer] for outer in made])


def parsed(count):
    """Dicts and lists of a text, as a service has them for each request."""
    return len(json.loads(json.dumps([{"id": number, "tags": [number]} for number in range(count // 8)])))


def parsed_unwatched(count):
    return _unwatched(parsed, count)


def new_buffers(count):
    """Eight buffers of a MiB, each new."""
    return sum(len(bytes([count % 250]) * (1 << 20)) for _ in range(8))


def one_buffer(count):
    buffer, size = bytearray(1 << 20), 0
    for _ in range(8):
        for at in range(0, 1 << 20, 1 << 16):
            buffer[at : at + (1 << 16)] = bytes([count % 250]) * (1 << 16)
        size += len(buffer)
    return size


def in_threads(count):
    """Sixteen threads, one after the other, where one would do."""
    found = []
    for part in range(16):
        thread = threading.Thread(target=lambda part=part: found.append(sum(range(count // 16 * part % 1000))))
        thread.start()
        thread.join()
    return len(found)


def in_one_thread(count):
    found: list[int] = []

    def every():
        found.extend(sum(range(count // 16 * part % 1000)) for part in range(16))

    thread = threading.Thread(target=every)
    thread.start()
    thread.join()
    return len(found)


def by_a_shell(count):
    subprocess.run("true; true", shell=True, check=True)
    return count


def by_a_program(count):
    subprocess.run(["true"], check=True)
    return count


def waits_for_answers(count):
    """Four answers of a neighbour, one after the other."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(time.sleep, 0.002).result()
    return count


def waits_for_all(count):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(time.sleep, [0.002] * 4))
    return count


@functools.cache
def _primes_below(limit):
    return [number for number in range(2, limit) if all(number % each for each in range(2, int(number**0.5) + 1))]


def primes_kept(count):
    return len(_primes_below(count // 10)) + sum(range(count))


def primes_anew(count):
    return len(_primes_below.__wrapped__(count // 10)) + sum(range(count))


PAIRS = {
    "20 MB filled or zeroed": ("filled", "zeroed", "shape_20"),
    "40 MB filled or zeroed": ("filled", "zeroed", "shape_40"),
    "sums in new memory or in place": ("added_up", "added_in_place", "shape_20"),
    "objects or columns": ("points", "columns", "small"),
    "rows with the collector off meanwhile": ("rows", "rows_unwatched", "small"),
    "rows with the collector off for good": ("rows", "rows_then_kept", "small"),
    "many small dicts or tuples": ("dicts", "tuples", "small"),
    "garbage in cycles or none": ("rings", "chains", "small"),
    "lists of lists or an array": ("lists_of_lists", "flat_array", "small"),
    "texts added or joined": ("added_text", "joined_text", "small"),
    "a cache filled or none": ("remembers", "recomputes", "small"),
    "a large live heap or a frozen one": ("server()", "frozen_server()", "small"),
    "squares kept or worked out": ("looked_up", "worked_out", "small"),
    "two child processes or one": ("in_children", "in_a_child", "small"),
    "three waits or one": ("waits_thrice", "waits_once", "small"),
    "deep copies or copies by hand": ("deep_copies", "shallow_copies", "small"),
    "a text read with the collector off meanwhile": ("parsed", "parsed_unwatched", "small"),
    "eight large buffers or one": ("new_buffers", "one_buffer", "small"),
    "sixteen threads or one": ("in_threads", "in_one_thread", "small"),
    "a shell or a program": ("by_a_shell", "by_a_program", "small"),
    "answers in turn or at once": ("waits_for_answers", "waits_for_all", "small"),
    "primes kept or worked out": ("primes_kept", "primes_anew", "small"),
}
"""By what differs: first, second and what makes their inputs. A name with () is a factory."""

BY_THE_CLOCK = (
    "two child processes or one",
    "three waits or one",
    "sixteen threads or one",
    "a shell or a program",
    "answers in turn or at once",
)
"""Pairs whose time is hardly spent in the process itself."""

# -- plain Python ------------------------------------------------------------------------------------------------------

SECONDS, PROCESSES = 0.5, 6

BARE, PROGRAM = "bare", "in a program"
PROGRAMS = {BARE: "", PROGRAM: "import argparse, asyncio, csv, decimal, email.message, http.client, logging, unittest"}
"""What a process imports first. Whether Python gives memory back at each call, and asks for it anew, depends on what
else lies in its heap: plain Python has no single answer where the two differ."""

RUNNER = """
{imports}
import sys, time
sys.path.insert(0, sys.argv[1])
import {module} as module
name, given = sys.argv[2], getattr(module, sys.argv[3])
function = getattr(module, name.removesuffix("()"))
if name.endswith("()"):
    function = function()
spent, calls, seed, begun = 0, 0, 0, time.perf_counter()
while not calls or time.perf_counter() - begun < float(sys.argv[4]):
    arguments = given(seed)
    at = time.{clock}()
    function(*arguments)
    at = time.{clock}() - at
    seed += 1
    if seed > 2:
        spent, calls = spent + at, calls + 1
print(spent / calls)
"""


def plain_ns(
    side: str, given: str, seconds: float = SECONDS, clock: str = "thread_time_ns", program: str = BARE
) -> float:
    """The mean time of a call in one fresh process, in nanoseconds."""
    here = Path(__file__)
    program = RUNNER.format(module=here.stem, clock=clock, imports=PROGRAMS[program])
    command = [sys.executable, "-c", program, str(here.parent), side, given, str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def plain_ratio(pair: str, *, processes: int = PROCESSES, seconds: float = SECONDS, program: str = BARE) -> float:
    """How many times as fast the second is, by the medians of so many processes of each side, which take turns."""
    first, second, given = PAIRS[pair]
    clock = "perf_counter_ns" if pair in BY_THE_CLOCK else "thread_time_ns"
    times: dict[str, list[float]] = {first: [], second: []}
    for turn in range(processes):
        for side in (first, second) if turn % 2 else (second, first):
            times[side].append(plain_ns(side, given, seconds, clock, program))
    return median(times[first]) / median(times[second])
