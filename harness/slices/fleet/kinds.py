"""Kinds of machines: which ones count as alike, and a short name for each.

Two machines are of one kind where nothing differs that shifts the *ratio* of two variants: processor model and
instruction sets, GPU, cores granted, system, torch, libc, threads and allocator settings. The model alone is not
enough: clouds call very different processors by one name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...evidence.effect import PIECE
from ...machine.environment import device_kind

Environment = Mapping[str, Any]

_NOISE = re.compile(r"\((?:R|TM|C)\)|\bCPU(?= +\S)|\bProcessor\b|@\s*[\d.]+\s*GHz|\b\w+-Core\b", re.IGNORECASE)
_TOLD_FIRST = ("amx", "avx", "sve", "asimd", "bf16", "vnni", "fma", "sse", "neon")
"""Parts of the names of instruction sets that numeric code uses: of many that differ these are named."""

UNKNOWN = "unknown processor"

PIECE_FOLDER = re.compile(r"(m[0-9]+)(?:\.([0-9]+))?")
"""The folder of a piece of the work: which node of a cluster, and its number there from the second on."""


def facts(environment: Environment) -> dict[str, Any]:
    """What makes a kind, by words for it; None for what the environment does not say."""
    device = environment.get("device") if device_kind(environment) != "cpu" else None
    cores, quota = environment.get("cores"), environment.get("cgroup_quota_cores")
    granted = cores if quota is None or cores is None else max(1, min(int(cores), int(quota)))
    gpu = {key: value for key, value in (device or {}).items() if key != "kind"}
    return {
        "processor": environment.get("cpu_model"),
        "instruction sets": sorted(environment.get("cpu_flags") or ()),
        "GPU": gpu or None,
        "cores": granted,
        "system": environment.get("system"),
        "architecture": environment.get("machine"),
        "libc": environment.get("libc"),
        "torch": environment.get("torch"),
        "threads": environment.get("threads"),
        "malloc": dict(sorted((environment.get("malloc") or {}).items())),
    }


def key_of(environment: Environment) -> str:
    """The same text for machines of one kind, another one for any other: 12 hexadecimal digits."""
    text = json.dumps(facts(environment), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def processor(environment: Environment) -> str:
    """What computes, in a few words: "AMD EPYC 9554", or the GPU where that computes."""
    if device_kind(environment) != "cpu":
        return str(environment["device"].get("name") or "unknown GPU")
    return " ".join(_NOISE.sub(" ", str(environment.get("cpu_model") or "")).split()) or UNKNOWN


def slug(environment: Environment) -> str:
    """A folder name for this kind: its processor, cores, and the beginning of `key_of`."""
    cores = facts(environment)["cores"]
    words = re.sub(r"[^a-z0-9]+", "-", processor(environment).lower()).strip("-")[:60]
    return f"{words}-{f'{cores}c-' if cores else ''}{key_of(environment)[:6]}"


def names(environments: Sequence[Environment]) -> list[str]:
    """A name for the kind of each: the processor, and in brackets what tells it from others of that name here."""
    kinds = {key_of(each): each for each in environments}
    return [_name(each, [other for key, other in kinds.items() if key != key_of(each)]) for each in environments]


def _name(environment: Environment, others: Sequence[Environment]) -> str:
    word = processor(environment)
    namesakes = [facts(each) for each in others if processor(each) == word]
    if not namesakes:
        return word
    own = facts(environment)
    marks: list[str] = []
    if any(each["instruction sets"] != own["instruction sets"] for each in namesakes):
        marks.append(_sets(set(own["instruction sets"]), [set(each["instruction sets"]) for each in namesakes]))
    for what in ("cores", "architecture", "system", "torch", "libc", "threads"):
        if any(each[what] != own[what] for each in namesakes):
            marks.append(_fact(what, own[what]))
    marks = list(filter(None, marks))
    if not marks:
        marks = [key_of(environment)[:6]]
    return f"{word} ({', '.join(marks)})"


def _sets(own: set[str], others: Sequence[set[str]]) -> str:
    """Instruction sets that it has, or lacks, which tell it from each of these; as few as will do, at most three."""
    left, named = [other for other in others if other != own], list[str]()
    while left and len(named) < 3:
        marks = {
            (name, name in own): sum((name in other) != (name in own) for other in left) for name in own.union(*left)
        }
        name, has = max(marks, key=lambda mark: (marks[mark], mark[1], -_place(mark[0]), mark[0]))
        named.append(name if has else f"no {name}")
        left = [other for other in left if (name in other) == has]
    return ", ".join(named)


def _place(name: str) -> int:
    """How far back an instruction set stands among those worth naming."""
    return next((index for index, begins in enumerate(_TOLD_FIRST) if begins in name), len(_TOLD_FIRST))


def _fact(what: str, value: object) -> str:
    if what in ("cores", "threads"):
        return f"{value} {what if value != 1 else what[:-1]}"
    if what == "torch":
        return f"torch {value}" if value else "no torch"
    return str(value)


def labels(environments: Sequence[Environment], folders: Sequence[str] = ()) -> list[str]:
    """A name for each run, each another one: that of its machine's kind, with a number where several are of one kind.

    folders: of the runs. A node of a cluster has one for each piece of the work ("m2", "m2.2", "m2.3").
    """
    kinds = names(environments)
    places = [PIECE_FOLDER.fullmatch(each) for each in folders] or [None] * len(kinds)
    nodes = [place[1] if place else str(index) for index, place in enumerate(places)]
    of_kind: dict[str, list[str]] = {}
    for name, node in zip(kinds, nodes, strict=True):
        of_kind.setdefault(name, [])
        of_kind[name] += [node] * (node not in of_kind[name])
    made = []
    for name, node, place in zip(kinds, nodes, places, strict=True):
        number = f" #{of_kind[name].index(node) + 1}" if len(of_kind[name]) > 1 else ""
        piece = f"{PIECE}{place[2] or 1}" if place and nodes.count(node) > 1 else ""
        made.append(f"{name}{number}{piece}")
    return made
