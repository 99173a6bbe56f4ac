"""What users hand in: checkpoints and claims, and the data files that they may edit."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from llama_workbench.datasets import checkpoints, geometries, tokenizer, workloads
from llama_workbench.datasets.geometries import DataError
from llama_workbench.datasets.tokenizer import TokenizerError
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import read_claim

from . import BYTES, Damage, Kind, digit, json_value, run_files

WORDS = 512


class Refused(Exception):
    """The first line of an error whose every line names the file."""


def _told(read: Callable[[Path], Any], place: Callable[[Path], Path] = lambda path: path) -> Callable[[Path], Any]:
    """`read`, its errors held to what every error must be: lines of a readable length, each with the file in it."""

    def told(path: Path) -> Any:
        try:
            return read(path)
        except (DataError, ClaimError, TokenizerError) as error:
            lines = str(error).splitlines()
            for line in lines:
                assert str(place(path)) in line, f"names no file: {line[:200]!r}"
                assert len(line) - len(str(path)) < 900, f"a line of {len(line)} letters: {line[:200]!r}"
            assert str(error) == "\n".join(lines), "breaks a line"
            raise Refused(lines[0]) from error

    return told


# --- Hugging Face folders ---


def model_folder(folder: Path) -> Path:
    made: Path = checkpoints.synthesize(geometries.get("tiny"), cache=folder / "cache")
    return made


def _sharded(folder: Path) -> Path:
    """Index of a checkpoint in two shards."""
    made = model_folder(folder)
    weights = load_file(made / "model.safetensors")
    places = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(weights)}
    for shard in sorted(set(places.values())):
        save_file({name: tensor for name, tensor in weights.items() if places[name] == shard}, made / shard)
    (made / "model.safetensors").unlink()
    index = made / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 664_832}, "weight_map": places}))
    return index


def _read_folder(path: Path) -> Any:
    cache = path.parent / "kept"
    config, told = checkpoints.described(path.parent, cache=cache)
    loaded = checkpoints.load(path.parent, cache=cache)
    return config, told, loaded.digest, digest_of(loaded)


def digest_of(loaded: checkpoints.Checkpoint) -> str:
    """Digest of every byte of the weights."""
    digest = hashlib.sha256()
    for tensor in loaded.weights.values():
        digest.update(tensor.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_tokenizer(path: Path) -> Any:
    cache = path.parent / "kept"
    return tokenizer.text_ids(path.parent, vocab_size=WORDS, cache=cache).tolist()


def in_header(damage: Damage) -> Damage:
    """A damage to the JSON in front of a safetensors file's tensors, its length told rightly."""

    def damaged(content: bytes, rng: random.Random) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = damage(content[8:end], rng)
        return struct.pack("<Q", len(header)) + header + content[end:]

    return damaged


# --- TOML ---

TOML_EXTREMES = (
    "true", "0", "-1", "1", "1e24", "-1e24", "5e-324", "1e999", "inf", "-inf", "nan", "1_000_000_000",
    "9223372036854775807",
    "1" + "0" * 400, "9" * 5000, "0x" + "f" * 5000, '""', '"x"', '"\\u0000"', '"\\u2028\\u0085"', "'" + "x" * 300 + "'",
    '"../../etc"', '"' + "x" * 20_000 + '"', "[]", "[[]]", "{}", "[1, 2]", "[2, 1]", "[0.0, inf]", '["x", "x"]',
    "[" * 5000 + "]" * 5000, "[" * 30 + "]" * 30, "{ a = " * 40 + "1" + " }" * 40, "[" + "1," * 3000 + "]",
    "[" + ",".join(f'"w{number}"' for number in range(3000)) + "]", "{ " + ".".join("a" * 3000) + " = 1 }",
    "{ " + ".".join("a" * 40) + " = 1 }", "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "9999-99-99", '"""\nx\n"""',
)  # fmt: skip


def toml_value(content: bytes, rng: random.Random) -> bytes:
    """One value that is an extreme one, one line that is gone, there twice or under another name."""
    lines = content.decode().splitlines()
    places = [index for index, line in enumerate(lines) if " = " in line and not line.startswith(("#", " "))]
    if not places:
        return content
    place = rng.choice(places)
    key, _, value = lines[place].partition(" = ")
    odd = f'"{key}\\n\\u2028{"y" * 300}"'
    replaced = rng.choice([[], [lines[place]] * 2, [f"{key}x = {value}"], [f"{odd} = {value}"], *_extreme(key)])
    return "\n".join([*lines[:place], *replaced, *lines[place + 1 :]]).encode()


def _extreme(key: str) -> list[list[str]]:
    return [[f"{key} = {value}"] for value in TOML_EXTREMES]


def toml_tables(content: bytes, rng: random.Random) -> bytes:
    """A table that is there again and again, is nested deep, or is empty."""
    text = content.decode()
    starts = [index for index in range(len(text)) if text.startswith("[", index) and text[index - 1 : index] == "\n"]
    start = rng.choice(starts)
    end = min([other for other in starts if other > start], default=len(text))
    table = text[start:end]
    deep = "[" + ".".join(["a"] * rng.choice([30, 60, 6000])) + "]\n"
    more = rng.choice([table, table * 200, table * 3000, deep, "[[x]]\n", "[]\n", table.splitlines()[0] + "\n"])
    return (text[:end] + "\n" + more + text[end:]).encode()


CLAIM = """\
id = "one-file"
title = "One file is faster"
who = ["TEAM-1", "TEAM-2"]
source = [{ document = "Notes", section = "Speed" }]
statement = "It is."
assumes = []
decided_by = "Measuring both."

[[hypothesis]]
part = "time"
evidence = "architecture"
variant = "fast"
baseline = ["team006_before", "team006_after"]
workloads = ["prefill-15m-t8", "decode-15m-c64"]
metric = "time"
gain_percent = [6, 11.5]

[[hypothesis]]
part = "share"
metric = "share"
variant = "fast"
workloads = ["prefill-15m-t8"]
phases = ["qkv"]
of = "layer"
range = [58, 64]

[[hypothesis]]
part = "rise"
metric = "trend"
variant = "fast"
baseline = "team006_before"
workloads = ["prefill-15m-t8", "prefill-15m-t128"]
range = [20, 50]
"""


def _claim(folder: Path) -> Path:
    (folder / "claim.toml").write_text(CLAIM)
    return folder / "claim.toml"


def _read_claim(path: Path) -> Any:
    claim = read_claim(path)
    said = [(part.describe(), str(part.region), list(part.comparisons())) for part in claim.hypothesis]
    return claim, said, claim.names(), claim.workloads(), claim.on("cuda")


def _copied(source: Path) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copy(source, folder / source.name))


TOML = (*BYTES, digit, toml_value, toml_value, toml_value, toml_tables)
JSON = (*BYTES, digit, json_value, json_value, json_value)


def kind(
    name: str,
    write: Callable[[Path], Path],
    read: Callable[[Path], Any],
    damages: tuple[Damage, ...],
    place: Callable[[Path], Path] = lambda path: path,
) -> Kind:
    """Who changed a number in a file of theirs meant it, for all that anybody can tell."""
    return Kind(name, write, _told(read, place), (Refused,), damages, silent_is_failure=False)


KINDS: tuple[Kind, ...] = (
    *run_files.KINDS,
    kind(
        "config.json", lambda folder: model_folder(folder) / "config.json", _read_folder, JSON, lambda path: path.parent
    ),
    kind(
        "safetensors",
        lambda folder: model_folder(folder) / "model.safetensors",
        _read_folder,
        (*BYTES, *(in_header(damage) for damage in JSON)),
        lambda path: path.parent,
    ),
    kind("index of shards", _sharded, _read_folder, JSON, lambda path: path.parent),
    kind("tokenizer.json", lambda folder: model_folder(folder) / "tokenizer.json", _read_tokenizer, JSON),
    kind("claim", _claim, _read_claim, TOML),
    kind("workloads.toml", _copied(workloads.WORKLOADS_FILE), workloads.workloads, TOML),
    kind("geometries.toml", _copied(geometries.GEOMETRIES_FILE), geometries.geometries, TOML),
)
"""Every kind of file that is fuzzed."""
