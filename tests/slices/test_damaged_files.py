"""Damaged files of slices: see `tests.fuzz`."""

from __future__ import annotations

import random
import struct
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from llama_workbench.dashboard.views import samples
from llama_workbench.datasets import checkpoints, tokenizer
from llama_workbench.harness.slices.gguf import cases as gguf_checks
from llama_workbench.harness.slices.memory import section as memory
from llama_workbench.harness.slices.profiles.tree import read_profile
from llama_workbench.harness.slices.roofline.metric import ROOFLINE, all_reached
from llama_workbench.harness.slices.share import section as breakdown
from llama_workbench.harness.store.folder import RunFolder
from tests.fuzz import BYTES, Damage, Kind, foreign, run_files, try_all

pytestmark = pytest.mark.covers("harness/store", "harness/slices", "datasets", "tests/fuzz")


def _gguf(folder: Path) -> Path:
    made = foreign.model_folder(folder)
    return gguf_checks.write(made, folder / "tiny.gguf", cache=folder / "cache")


def _read_gguf(path: Path) -> Any:
    cache = path.parent / "kept"
    config, told = checkpoints.described(path, cache=cache)
    loaded = checkpoints.load(path, cache=cache)
    words = tokenizer.text_ids(path, vocab_size=foreign.WORDS, cache=cache).tolist()
    return config, told, loaded.digest, foreign.digest_of(loaded), words


def gguf_value(content: bytes, rng: random.Random) -> bytes:
    """One number of the metadata or of a tensor's entry, or one length, that is an extreme one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "whole.gguf"
        file.write_bytes(content)
        reader = GGUFReader(file)
        fields = [*reader.fields.values(), *(tensor.field for tensor in reader.tensors)]
        field = rng.choice(fields)
        at = rng.randrange(len(field.parts))
        inner = sum(part.nbytes for part in field.parts[:at])
        part = field.parts[at]
        item = rng.randrange(part.size) * part.itemsize if part.size else 0
        start, width = field.offset + inner + item, part.itemsize
    worst = [0, 1, 2, (1 << 8 * width) - 1, 1 << (8 * width - 1), rng.randrange(1 << 8 * width), min(10**6, 255)]
    if width >= 4:
        worst += [10**6, 10**9, struct.unpack("<I", struct.pack("<f", rng.choice([1e24, -1.0, 5e-324, 1e-9])))[0]]
    return content[:start] + rng.choice(worst).to_bytes(width, "little") + content[start + width :]


def before_tensors(damage: Damage) -> Damage:
    """A damage to a GGUF file's first sixteenth: metadata, tokenizer and the entries of its tensors."""

    def damaged(content: bytes, rng: random.Random) -> bytes:
        end = len(content) // 16
        return damage(content[:end], rng) + content[end:]

    return damaged


def _reached(run: RunFolder) -> list[object]:
    """roofline.json, in the report."""
    return [*all_reached(run.read(ROOFLINE), alpha=0.01)]


def _phases(run: RunFolder) -> list[object]:
    """What the phase pass found, on the page."""
    phases = breakdown.read_phases(run_files.open_run(run))
    for problem in phases.problems:
        warnings.warn(problem, stacklevel=2)
    told: list[object] = [phases.problems]
    for workload, variant in phases.measured:
        for of in breakdown.WHOLES:
            try:
                told.append(breakdown.shares_of(phases, workload, variant, of, 0.01))
            except ValueError as error:
                told.append(str(error))
    return told


def _memory(run: RunFolder) -> list[object]:
    """memory.json, on the page."""
    opened = run_files.open_run(run)
    return [memory.tradeoff(opened, samples.read_evidence(opened), run_files.WORKLOAD)]


def _profiles(run: RunFolder) -> list[object]:
    """profiles.json and the stacks that it names, on the page."""
    opened = run_files.open_run(run)
    found = [read_profile(opened, *pair) for pair in opened.profiles]
    for profile in found:
        if profile is not None and profile.root is None:
            warnings.warn(profile.reason, stacklevel=2)
    return [found]


READERS: Mapping[str, Callable[[RunFolder], list[object]]] = {
    "run.json": lambda run: [breakdown.order(run_files.open_run(run), run_files.WORKLOAD)],
    "roofline.json": _reached,
    "phases.json": _phases,
    "phases.parquet": _phases,
    "memory.json": _memory,
    "memory_sweep.json": lambda run: [memory.read_policies(run_files.open_run(run))],
    "profiles.json": _profiles,
    "profiles/a.folded": _profiles,
}

KINDS: tuple[Kind, ...] = (
    *(
        replace(kind, name=f"{kind.name}, in a slice")
        for sealed in (True, False)
        for kind in (run_files.kind(name, read, sealed=sealed) for name, read in READERS.items())
    ),
    foreign.kind("GGUF", _gguf, _read_gguf, (*(before_tensors(damage) for damage in BYTES), gguf_value, gguf_value)),
)
"""Of the files that slices read, and of what they read them for."""


def test_a_run_that_has_not_ended_is_read_without_a_word(tmp_path: Path) -> None:
    run = run_files.write_whole_run(tmp_path / "one", sealed=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in READERS.values():
            read(run)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_of_a_slice_is_told_in_one_line(kind: Kind, tmp_path: Path) -> None:
    tally = try_all(kind, tmp_path / "tries", cases=40)
    assert tally.failed == []
    assert tally.refused + tally.warned + tally.accepted > tally.tried / 3
