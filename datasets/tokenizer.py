"""Text that every Python ships, a tokenizer trained on it, and prompts cut from it.

The text is the language reference in `pydoc_data.topics`: it may differ between Python versions, not between machines.
"""

from __future__ import annotations

import hashlib
import io
import os
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING

import numpy as np

from llama_workbench.cache import cache_directory, keep
from llama_workbench.harness.slices import faces

from .files import TOKENIZER_BYTES, read_bytes, shortened
from .geometries import CheckpointError

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

LARGEST_VOCABULARY = 8192  # the text is 0.5 MB: more words than this would each be seen a handful of times

FILE = "tokenizer.json"

_SPECIAL = ["<s>", "</s>"]

_BELONGS = "put the tokenizer.json that belongs to this checkpoint into its folder"


class TokenizerError(CheckpointError):
    """A checkpoint's tokenizer cannot be used. The text names the file, what is wrong, and the fix."""


NO_TOKENIZER_IDS = 1 << 16
"""Token ids that are drawn where a checkpoint has no tokenizer; about as many as those of the text with a large one."""


def text() -> list[str]:
    """The topics of the Python language reference, in alphabetical order (about 0.5 MB in all)."""
    return [topics[name] for name in sorted(topics)]


def train(vocab_size: int, *, cache: Path | None = None) -> str:
    """A byte-level BPE tokenizer for a model of that vocabulary, as the text of its tokenizer.json.

    It has min(`vocab_size`, 8192) words, all 256 bytes among them, so that every text has ids and comes back unchanged.
    Kept in `cache` (default: `cache_directory()`). Raises `TokenizerError` for a vocabulary smaller than the 256 bytes
    and two special tokens."""
    from tokenizers import __version__

    size = min(vocab_size, LARGEST_VOCABULARY)
    if size < (least := 256 + len(_SPECIAL)):
        raise TokenizerError(f"vocab_size = {vocab_size}, expected at least {least} (256 bytes, <s>, </s>)")
    digest = _text_digest()
    file = (cache or cache_directory()) / "tokenizers" / f"{size}-{digest}-{__version__}.json"
    with suppress(OSError):
        return read_bytes(file, at_most=TOKENIZER_BYTES).decode("utf-8")
    content = _trained(size, digest)
    keep(file, content.encode())
    return content


@cache
def _trained(size: int, _digest_of_text: str) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text(), trainer)
    return tokenizer.to_str(pretty=True)


DRAWN = 4
"""The first words of a prompt are drawn one by one, so that no two prompts begin alike; text follows."""


@dataclass
class Prompts:
    """Prompts by number, cut from a text: the same number gives the same prompt in every process.

    No call is given a used one, or a variant could gain by remembering prompts. The process that times calls and the
    one that judges their outputs each cut the prompts themselves, so neither has to trust the other. `ids` are the
    text's words; `draw` decides which prompt a number means, and no variant may know it beforehand, or answers could be
    prepared on disk. `repeated`: every number gives the same prompt."""

    ids: NDArray[np.int32]
    batch: int
    draw: str
    repeated: bool = False
    _next: int = 0

    def take(self, count: int = 1) -> int:
        """The first of `count` new numbers in a row."""
        first, self._next = self._next, self._next + count
        return first

    def tokens(self, number: int, length: int) -> NDArray[np.int64]:
        """Token ids [B, length] of one prompt; a longer one begins with the shorter one of the same number."""
        rng = random.Random(f"{self.draw} {0 if self.repeated else number}")
        rows = []
        for _ in range(self.batch):
            start = rng.randrange(len(self.ids))
            row = self.ids.take(np.arange(start, start + max(length, DRAWN)), mode="wrap")
            row[:DRAWN] = self.ids[[rng.randrange(len(self.ids)) for _ in range(DRAWN)]]
            rows.append(row[:length])
        return np.stack(rows).astype(np.int64)


def reader_of(checkpoint: Path) -> ModuleType | None:
    """The slice that reads checkpoints of this form; None of a Hugging Face folder."""
    return next((reader for reader in faces("checkpoint") if reader.takes(checkpoint)), None)


def text_ids(checkpoint: Path, *, vocab_size: int, cache: Path | None = None) -> NDArray[np.int32]:
    """The whole text in a checkpoint's own words, without special tokens; all ids are below `vocab_size`. Kept in
    `cache` under the digest of tokenizer.json, or under the path, size and time of a checkpoint that is one file: a
    tokenizer takes seconds to make from its metadata. Where `checkpoint` has no tokenizer, they are drawn at random,
    the same in every process. Raises `TokenizerError` if it has one that cannot be used."""
    file, content = _identified(checkpoint)
    if not content:
        return _drawn_ids(vocab_size)
    name = f"{hashlib.sha256(content).hexdigest()[:16]}-{_text_digest()}.npy"
    kept = (cache or cache_directory()) / "tokenised" / name
    ids: NDArray[np.int64] = np.empty(0, np.int64)
    with suppress(OSError, ValueError, EOFError):  # not there yet, or damaged
        ids = np.load(kept, allow_pickle=False)
    is_kept = ids.dtype == np.int32 and ids.ndim == 1 and len(ids) > 0
    if not is_kept:
        tokenizer = _made(file, content)
        if tokenizer is None:
            return _drawn_ids(vocab_size)
        tokenizer.no_truncation()  # a folder's file may ask for either; the text is to be kept whole
        tokenizer.no_padding()
        encoded = tokenizer.encode_batch(text(), add_special_tokens=False)
        ids = np.array([word for topic in encoded for word in topic.ids], dtype=np.int64)
    if not len(ids):
        pages = f"{len(text())} pages of text"
        raise TokenizerError(f"{file}: gives no ids at all for {pages}, expected a tokenizer for text")
    if (largest := int(ids.max())) >= vocab_size:
        expected = f"expected ids below the model's vocab_size = {vocab_size}"
        raise TokenizerError(f"{file}: gives the id {largest}, {expected}; {_BELONGS}")
    if not is_kept:
        saved = io.BytesIO()
        np.save(saved, ids.astype(np.int32), allow_pickle=False)
        keep(kept, saved.getvalue())
    return ids.astype(np.int32, copy=False)


def _identified(checkpoint: Path) -> tuple[Path, bytes]:
    """The file with a checkpoint's tokenizer, and what tells it from others: a tokenizer.json's content, or the path,
    size and time of a checkpoint that is one file. Empty where there is no file."""
    if reader_of(checkpoint):
        status = checkpoint.stat()
        return checkpoint, f"{checkpoint.resolve()} {status.st_size} {status.st_mtime_ns}".encode()
    file = checkpoint / FILE
    if not os.path.lexists(file):
        return file, b""
    try:
        return file, read_bytes(file, at_most=TOKENIZER_BYTES) or b" "
    except OSError as error:
        problem = f"cannot be read ({error.strerror}), expected the checkpoint's tokenizer.json"
        written = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        raise TokenizerError(f"{file}: {problem}; copy it there, or write it with transformers: {written}") from error


def _made(file: Path, content: bytes) -> Tokenizer | None:
    """The tokenizer of a file; None of a checkpoint that is one file and has none."""
    from tokenizers import Tokenizer

    try:
        if reader := reader_of(file):
            return reader.tokenizer_of(file)
        return Tokenizer.from_buffer(content)
    except Exception as error:  # the libraries raise plain Exception
        fix = "take the file from the checkpoint's source again"
        raise TokenizerError(f"{file}: no tokenizer comes of it ({shortened(str(error))}); {fix}") from error


def _drawn_ids(vocab_size: int) -> NDArray[np.int32]:
    return np.random.default_rng(0).integers(vocab_size, size=NO_TOKENIZER_IDS, dtype=np.int32)


def _text_digest() -> str:
    return hashlib.sha256("\0".join(text()).encode()).hexdigest()[:16]
