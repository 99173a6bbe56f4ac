"""Text that every Python ships, a tokenizer trained on it, and prompts cut from it.

The text is the Python language reference in `pydoc_data.topics`, so it (and with it tokenizer and prompts) may differ
a little between Python versions, never between machines with the same one.

Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import suppress
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING

import numpy as np

from .cache import CacheError, cache_directory, partial_folder
from .files import TOKENIZER_BYTES, read_bytes, shortened
from .shape import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

LARGEST_VOCABULARY = 8192  # the text is 0.5 MB: more words than this would each be seen a handful of times

FILE = "tokenizer.json"

_BELONGS = "put the tokenizer.json that belongs to this checkpoint into its folder"


class TokenizerError(ValueError):
    """A checkpoint's tokenizer cannot be used. The text names the file, what is wrong, and the fix."""


# --- text and tokenizer ---


def text() -> list[str]:
    """The topics of the Python language reference, in alphabetical order (about 0.5 MB in all)."""
    return [topics[name] for name in sorted(topics)]


def train(vocab_size: int, *, cache: Path | None = None) -> str:
    """A byte-level BPE tokenizer for a model of that vocabulary, as the text of its tokenizer.json.

    It has min(`vocab_size`, 8192) words, all 256 bytes among them, so that every text has ids and comes back unchanged.
    The same text and size give the same tokenizer. Kept in `cache` (default: `cache_directory()`).
    Raises `TokenizerError` for a vocabulary smaller than the 256 bytes and two special tokens.
    """
    from tokenizers import Tokenizer, __version__, decoders, models, pre_tokenizers, trainers

    size = min(vocab_size, LARGEST_VOCABULARY)
    special = ["<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if size < len(alphabet) + len(special):
        raise TokenizerError(
            f"vocab_size = {vocab_size}, expected at least {len(alphabet) + len(special)} (256 bytes, <s>, </s>)"
        )
    folder = (cache or cache_directory()) / "tokenizers"
    file = folder / f"{size}-{_text_digest()[:16]}-{__version__}.json"
    with suppress(OSError):
        return read_bytes(file, at_most=TOKENIZER_BYTES).decode("utf-8")

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text(), trainer)
    content = tokenizer.to_str(pretty=True)
    with suppress(CacheError), partial_folder(folder, file.name, needed_bytes=len(content)) as partial:
        (partial / FILE).write_text(content, encoding="utf-8")
        os.replace(partial / FILE, file)
    return content


def prompt_ids(
    checkpoint: Path, *, count: int, length: int, seed: int, vocab_size: int, cache: Path | None = None
) -> list[list[int]]:
    """`count` prompts of `length` token ids, cut at random places from the text in a checkpoint's own words.

    A prompt longer than the text goes on at its start. The same seed gives the same prompts. Raises as `text_ids`.
    """
    ids = text_ids(checkpoint, vocab_size=vocab_size, cache=cache)
    rng = random.Random(f"prompts {seed}")
    starts = [rng.randrange(len(ids)) for _ in range(count)]
    return [ids.take(np.arange(start, start + length), mode="wrap").tolist() for start in starts]


def text_ids(checkpoint: Path, *, vocab_size: int, cache: Path | None = None) -> NDArray[np.int32]:
    """The whole text in a checkpoint's own words; all ids are below `vocab_size`, and no special tokens are added.

    Raises `TokenizerError` if `checkpoint` (a folder with tokenizer.json, or a .gguf file) has no usable tokenizer.
    """
    file, content = _content(checkpoint)
    ids = _text_ids(file, content, cache=cache or cache_directory())
    largest = int(ids.max())
    if largest >= vocab_size:
        raise TokenizerError(
            f"{file}: gives the id {largest}, expected ids below the model's vocab_size = {vocab_size}; {_BELONGS}"
        )
    return ids


def _content(checkpoint: Path) -> tuple[Path, bytes]:
    """The tokenizer.json of a checkpoint, and the file it comes from; of a GGUF file, rebuilt from its metadata."""
    from .gguf import tokenizer as gguf_tokenizer
    from .gguf.metadata import is_gguf

    if is_gguf(checkpoint):
        try:
            return checkpoint, gguf_tokenizer.tokenizer_json(checkpoint).encode()
        except CheckpointError as error:
            raise TokenizerError(str(error)) from error
    file = checkpoint / FILE
    try:
        return file, read_bytes(file, at_most=TOKENIZER_BYTES)
    except OSError as error:
        raise TokenizerError(
            f"{file}: cannot be read ({error.strerror}), expected the checkpoint's tokenizer.json; copy it there, or "
            "write it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        ) from error


def _text_ids(file: Path, content: bytes, *, cache: Path) -> NDArray[np.int32]:
    """The whole text as ids of one tokenizer; kept in `cache` under the tokenizer's digest."""
    folder = cache / "tokenised"
    kept = folder / f"{hashlib.sha256(content).hexdigest()[:16]}-{_text_digest()[:16]}.npy"
    try:
        return _loaded(kept)
    except (OSError, ValueError, EOFError):  # not there yet, or damaged
        pass
    tokenizer = _tokenizer(file, content)
    encoded = tokenizer.encode_batch(text(), add_special_tokens=False)
    wide = np.array([word for topic in encoded for word in topic.ids], dtype=np.int64)
    largest = int(wide.max(initial=0))
    if largest > np.iinfo(np.int32).max:
        raise TokenizerError(f"{file}: gives the id {largest}, expected ids of a model's words; {_BELONGS}")
    ids = wide.astype(np.int32)
    if not len(ids):
        raise TokenizerError(
            f"{file}: gives no ids at all for {len(text())} pages of text, expected a tokenizer for text"
        )
    # A cache that cannot be written costs the same work next time, nothing else.
    with suppress(CacheError), partial_folder(folder, kept.name, needed_bytes=ids.nbytes) as partial:
        np.save(partial / "ids.npy", ids, allow_pickle=False)
        os.replace(partial / "ids.npy", kept)
    return ids


def _loaded(file: Path) -> NDArray[np.int32]:
    ids: NDArray[np.int32] = np.load(file, allow_pickle=False)
    if ids.dtype != np.int32 or ids.ndim != 1 or not len(ids):
        raise ValueError(f"{file}: not token ids")
    return ids


def _tokenizer(file: Path, content: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises plain Exception
        raise TokenizerError(
            f"{file}: not a tokenizer.json ({shortened(str(error))}); take the file from the checkpoint's source again"
        ) from error
    tokenizer.no_truncation()  # a folder's file may ask for either; the text is to be kept whole
    tokenizer.no_padding()
    return tokenizer


def _text_digest() -> str:
    return hashlib.sha256("\0".join(text()).encode()).hexdigest()
