"""Two checks about GGUF: a file is read as the model that it was written from, and its tokenizer too.

Each gives one `(case, passed, detail)` a case, and writes below `cache` only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from gguf import GGUFWriter, TokenType

from llama_workbench.datasets import checkpoints, geometries, tokenizer
from llama_workbench.datasets.geometries import Geometry
from llama_workbench.variants import gguf_file
from llama_workbench.variants.config import RopeScaling

Case = tuple[str, bool, str]


def gguf_geometries() -> list[Geometry]:
    """The small shapes that GGUF can get wrong: heads alike and grouped, a tied head, Llama-3 RoPE, padded words."""
    tiny, grouped = geometries.get("tiny"), geometries.get("tiny-gqa")
    scaling = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)

    def changed(geometry: Geometry, name: str, **changes: object) -> Geometry:
        return replace(geometry, name=name, config=replace(geometry.config, **changes))  # type: ignore[arg-type]

    return [
        tiny,
        grouped,
        changed(tiny, "tiny-tied", tie_word_embeddings=True),
        changed(grouped, "tiny-llama3", rope_theta=500_000.0, rope_scaling=scaling, rms_norm_eps=1e-6),
        changed(grouped, "tiny-wide-heads", head_dim=32, vocab_size=tokenizer.LARGEST_VOCABULARY + 100),
    ]


def write(folder: Path, file: Path, *, cache: Path) -> Path:
    """The GGUF file of a checkpoint that was drawn here, as llama.cpp's converter writes it. Returns `file`."""
    checkpoint = checkpoints.load(folder, cache=cache)
    model = json.loads((folder / tokenizer.FILE).read_text(encoding="utf-8"))["model"]
    words = {word_id: word for word, word_id in model["vocab"].items()}

    def describe(writer: GGUFWriter) -> None:
        rows = range(checkpoint.config.vocab_size)
        specials = {0: TokenType.CONTROL, 1: TokenType.CONTROL}
        writer.add_name(checkpoint.name)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([words.get(row, f"[PAD{row}]") for row in rows])
        writer.add_token_types(
            [specials.get(row, TokenType.NORMAL if row in words else TokenType.UNUSED) for row in rows]
        )
        writer.add_token_merges([" ".join(pair) for pair in model["merges"]])

    gguf_file.write(file, checkpoint.config, checkpoint.weights, describe)
    return file


def check_gguf_loads(cache: Path, seed: int) -> Iterator[Case]:
    """Each geometry written and read back has the folder's numbers, and its weights to the bit."""
    for geometry in gguf_geometries():
        folder = checkpoints.synthesize(geometry, seed=seed, cache=cache)
        original = checkpoints.load(folder, cache=cache)
        with TemporaryDirectory(dir=cache, prefix=".gguf-") as temporary:
            file = write(folder, Path(temporary) / f"{geometry.name}.gguf", cache=cache)
            read = checkpoints.load(file, cache=Path(temporary))
        wrong = [name for name, weight in original.weights.items() if not torch.equal(weight, read.weights[name])]
        yield f"{geometry.name}: numbers", read.config == original.config, f"{read.config} for {original.config}"
        yield f"{geometry.name}: weights", not wrong, ", ".join(wrong) or f"{len(read.weights)} are the same"


def check_tokenizer_matches(cache: Path, seed: int) -> Iterator[Case]:
    """Prompts are cut from the same ids, whether the tokenizer comes from tokenizer.json or from a GGUF file."""
    tiny = geometries.get("tiny")
    for rows in (512, tokenizer.LARGEST_VOCABULARY + 100):
        geometry = replace(tiny, name=f"tiny-{rows}", config=replace(tiny.config, vocab_size=rows))
        folder = checkpoints.synthesize(geometry, seed=seed, cache=cache)
        with TemporaryDirectory(dir=cache, prefix=".gguf-") as temporary:
            file = write(folder, Path(temporary) / "tokenizer.gguf", cache=cache)
            ids, expected = (
                tokenizer.text_ids(source, vocab_size=rows, cache=Path(temporary)).tolist() for source in (file, folder)
            )
        yield f"{rows} rows", ids == expected, f"{len(ids)} ids for {len(expected)}"
