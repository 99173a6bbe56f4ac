"""What a GGUF file says besides its weights and its tokenizer: the shape of the model and its RoPE.

GGUF is llama.cpp's file format; keys and values follow its converter (convert_hf_to_gguf.py, class LlamaModel).
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, Keys, ReaderTensor
from numpy.typing import NDArray
from pydantic import ValidationError

from llama_workbench.variants.config import LlamaConfig, RopeScaling
from llama_workbench.variants.engines.gguf_file import ARCHITECTURE, NAMES, ROPE_FACTORS, rope_factors, wavelengths

from ..faults import faults
from ..files import open_regular, short
from ..geometries import LARGEST_FACTOR, MOST_COUNT, CheckpointError, Shape, fail
from ..texts import shortened

MOST_KEYS, MOST_TENSORS, MOST_TEXTS = 1 << 12, 1 << 17, 1 << 21
"""Of a file: keys, tensors, and texts in all its lists (a large tokenizer has 0.3 million words and as many merges)."""

AGAIN = "fetch the file again"
_CONVERT = "write it with llama.cpp's convert_hf_to_gguf.py from a Llama checkpoint"
_NO_VARIANT = "no variant computes this; take another model"
NO_TOKENIZER = ("no_vocab", "none")
"""What llama.cpp writes for the kind of a tokenizer where there is none."""

FOLDER = "take the Hugging Face folder of this model instead"


def is_gguf(path: Path | str) -> bool:
    """Whether a checkpoint's path is meant as a GGUF file (and not as a folder)."""
    return Path(path).suffix.lower() == ".gguf"


class Reader(GGUFReader):
    """The library's reader, made strict and fast. The file is memory-mapped, its pages private: nothing is written.

    The library's reads on beyond the end of the file, up to 2^64 where a length is damaged, and makes four arrays for
    each entry of a list, which takes seconds for the words of a tokenizer. Lists of lists, which no Llama has, are
    refused.
    """

    _texts_left = MOST_TEXTS

    def __init__(self, path: Path) -> None:
        self.path = path
        with np.errstate(over="ignore"):  # of a place beyond 2^64, see `_check_places`
            super().__init__(path, "c")

    def content(self, key: str) -> Any:
        """The value of a key, whatever it is; None where there is none. Raises `CheckpointError` for broken UTF-8."""
        field = self.get_field(key)
        try:
            return None if field is None else field.contents()
        except UnicodeDecodeError as error:
            fail(self.path, f"{key} is not UTF-8 ({shortened(str(error))})", AGAIN)

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key as int, float, bool, str or list; `default` where there is none, an error without one."""
        value = self.content(key)
        if value is None:
            if default is None:
                fail(self.path, f"{key} is missing", AGAIN)
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            fail(self.path, f"{key} = {short(value)}, expected {kind.__name__}", AGAIN)
        return value

    def number(self, key: str) -> Any:
        """The value of a key, a list for all layers as one where they are alike, float32 as its shortest decimal."""
        value = self.content(key)
        if isinstance(value, list):
            if len(set(value)) != 1:
                fail(self.path, f"{key} = {short(value)}, expected the same in every layer", _NO_VARIANT)
            value = value[0]
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> NDArray[Any]:
        self._demand(int(offset) + int(count) * np.dtype(dtype).itemsize)
        return super()._get(offset, dtype, count, override_order)

    def _demand(self, end: int) -> None:
        if not 0 <= end <= len(self.data):
            raise EOFError(f"truncated or damaged: {len(self.data)} bytes, expected at least {end}")

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[NDArray[Any]], list[int], list[GGUFValueType]]:
        if raw_type != GGUFValueType.ARRAY or self.byte_order != "I":
            return super()._get_field_parts(orig_offs, raw_type)
        kind = GGUFValueType(self._get(orig_offs, np.uint32)[0])
        count = int(self._get(orig_offs + 4, np.uint64)[0])
        types, start = [GGUFValueType.ARRAY, kind], orig_offs + 12
        if (scalar := self.gguf_scalar_to_np.get(kind)) is not None:
            whole = self._get(start, scalar, count)
            return 12 + whole.nbytes, [whole], [0], types
        if kind != GGUFValueType.STRING:
            raise ValueError("a list of lists, expected one of numbers or of texts")
        self._demand(start + 8 * count)
        self._texts_left -= count
        if self._texts_left < 0:
            raise ValueError(f"more than {MOST_TEXTS:,} texts in lists")
        content, parts, end = np.asarray(self.data), [], start
        for _ in range(count):
            self._demand(end + 8)
            length = int.from_bytes(content[end : end + 8].tobytes(), sys.byteorder)
            self._demand(end + 8 + length)
            parts.append(content[end + 8 : end + 8 + length])
            end += 8 + length
        return end - orig_offs, parts, list(range(count)), types


def opened(path: Path) -> Reader:
    """Metadata and tensors of a GGUF file. Raises `CheckpointError` for one that is missing, empty, truncated, damaged,
    one of several, of another byte order, or not GGUF 2 or 3."""
    try:
        with open_regular(path) as file:
            _check_counts(path, file.read(24), os.fstat(file.fileno()).st_size)
        reader = Reader(path)
    except OSError as error:
        fail(path, f"cannot be read ({error.strerror})", "check the path")
    except EOFError as error:
        fail(path, str(error), AGAIN)
    except CheckpointError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        fail(path, f"damaged ({shortened(str(error))})", AGAIN)
    if reader.byte_order != "I":
        fail(path, "written for the other byte order", "convert it: python -m gguf.scripts.gguf_convert_endian")
    if (parts := reader.value(Keys.Split.LLM_KV_SPLIT_COUNT, int, 1)) > 1:
        fail(path, f"one of {parts} parts, expected a whole model", "join them: llama-gguf-split --merge FIRST OUT")
    _check_places(reader)
    return reader


def kind_of_tokenizer(reader: Reader) -> str:
    """The kind of a file's tokenizer, under llama.cpp's name; empty where there is none."""
    kind = reader.value(Keys.Tokenizer.MODEL, str, NO_TOKENIZER[0])
    return "" if kind in NO_TOKENIZER else shortened(kind)


def _check_counts(path: Path, start: bytes, size_bytes: int) -> None:
    """Refuse a file by its first 24 bytes: another format, or more keys or tensors than can be in it."""
    if start[:8] == b"version ":
        fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
    if start[:4] != b"GGUF":
        fail(path, f"not a GGUF file (starts with {start[:4]!r}, expected b'GGUF')", _CONVERT)
    if len(start) < 24:
        return  # the reader says where it ends
    version, tensors, keys = struct.unpack("=4xIQQ", start)
    if version & 0xFFFF == 0:  # of the other byte order, which `opened` reports
        version, tensors, keys = struct.unpack(">4xIQQ" if sys.byteorder == "little" else "<4xIQQ", start)
    for name, count, most, least_bytes in (
        ("tensors", tensors, MOST_TENSORS, 24),  # length of the name, number of dimensions, kind, place
        ("keys", keys, MOST_KEYS, 13),  # length of the name, kind, value
    ):
        room = min(most, size_bytes // least_bytes)
        if count > room:
            fail(path, f"{count} {name}, expected at most {room} in {size_bytes} bytes", AGAIN)


def _check_places(reader: Reader) -> None:
    """Refuse tensors that do not follow each other without a gap, as llama.cpp does: one place is damaged."""
    expected = 0
    for tensor in reader.tensors:
        start = int(tensor.field.parts[-1][0])
        if start != expected:
            problem = f"begins {start} bytes into the tensors, expected {expected}, behind the one before"
            fail(f"{reader.path}: {shortened(tensor.name)}", problem, AGAIN)
        expected += -(-int(tensor.n_bytes) // int(reader.alignment)) * int(reader.alignment)


# --- the model's shape ---

# Keys that change what is computed, with the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    Keys.LLM.EXPERT_COUNT: (0,),
    Keys.LLM.LOGIT_SCALE: (0.0, 1.0),
    Keys.LLM.RESIDUAL_SCALE: (0.0, 1.0),
    Keys.LLM.EMBEDDING_SCALE: (0.0, 1.0),
    Keys.Attention.SCALE: (0.0,),
    Keys.Attention.CAUSAL: (True,),
    Keys.Attention.SLIDING_WINDOW: (0,),
    Keys.Rope.SCALING_TYPE: ("none",),
    "{arch}.rope.scale_linear": (1.0,),
}


def llama_config(reader: Reader) -> LlamaConfig:
    """The model's shape; float32 numbers as their shortest decimal. Raises `CheckpointError` for another architecture,
    a number that is missing or impossible, or one that asks for what no variant computes."""
    path = reader.path
    architecture = reader.value(Keys.General.ARCHITECTURE, str)
    if architecture != ARCHITECTURE:
        fail(path, f"{Keys.General.ARCHITECTURE} = {short(architecture)}, expected {ARCHITECTURE!r}", _NO_VARIANT)
    for template, neutral in _NEUTRAL.items():
        key = template.format(arch=ARCHITECTURE)
        if (value := reader.content(key)) is not None and value not in neutral:
            fail(path, f"{key} = {short(value)}, expected {neutral[-1]!r}", _NO_VARIANT)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        fail(path, "missing tensor token_embd.weight", AGAIN)
    names = {name: template.format(arch=ARCHITECTURE) for name, template in NAMES.items()}
    values = {name: value for name, key in names.items() if (value := reader.number(key)) is not None} | {
        "vocab_size": int(tensors["token_embd.weight"].shape[-1]),
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    try:
        config = Shape.model_validate(values).config()
    except ValidationError as error:
        fail(path, faults(error, values, Shape, names=names)[0], AGAIN)
    for template in (Keys.Attention.VALUE_LENGTH, Keys.Rope.DIMENSION_COUNT):
        key = template.format(arch=ARCHITECTURE)
        if (value := reader.number(key)) not in (None, config.head_dim):
            fail(path, f"{key} = {short(value)}, expected {config.head_dim} as in the keys", _NO_VARIANT)
    if config.num_hidden_layers > (most := len(reader.tensors)):  # listing what it asks for might take for ever
        problem = f"{names['num_hidden_layers']} = {config.num_hidden_layers}, expected at most {most}"
        fail(path, f"{problem} with {most} tensors in the file", AGAIN)
    if (factors := tensors.get(ROPE_FACTORS)) is None:
        return config
    return replace(config, rope_scaling=_rope_scaling(reader, factors, config.rope_theta, config.head_dim))


def _rope_scaling(reader: Reader, tensor: ReaderTensor, theta: float, head_dim: int) -> RopeScaling | None:
    """Llama-3 scaling that gives the factors in the file.

    The formula uses `original`, `low` and `high` only as original/low and original/high, so any of them with the same
    quotients is the same RoPE. `original` is taken from the file (ours have it, those of llama.cpp's converter do not)
    or such that low is 1, as in all of Meta's models. With fewer than two wavelengths in the step its ends are unknown
    too; any that give the same factors will do.
    """
    key = Keys.Rope.SCALING_ORIG_CTX_LEN.format(arch=ARCHITECTURE)
    original = reader.value(key, int, 0)
    if not 0 <= original <= MOST_COUNT:
        fail(reader.path, f"{key} = {original}, expected 0 to {MOST_COUNT}", AGAIN)
    where, shape = f"{reader.path}: {ROPE_FACTORS}", list(tensor.data.shape)
    if tensor.tensor_type.name != "F32" or shape != [head_dim // 2]:
        problem = f"{tensor.tensor_type.name} of shape {shape}, expected F32 of shape [{head_dim // 2}]"
        fail(where, problem, AGAIN)
    factors = tensor.data.astype(np.float64)
    if np.all(factors == 1):
        return None
    if np.all(factors >= 1) and np.all(factors <= LARGEST_FACTOR):
        for scaling in _guesses(factors, wavelengths(theta, head_dim), original):
            if np.allclose(rope_factors(scaling, theta, head_dim), factors, rtol=1e-5, atol=0):
                return scaling
    expected = "1 for short wavelengths, one factor for long ones, a smooth step between"
    fail(where, f"not Llama-3 scaling ({expected})", _NO_VARIANT)


def _guesses(factors: NDArray[np.float64], waves: NDArray[np.float64], original: int) -> Iterator[RopeScaling]:
    """What may have made these factors, likeliest first (see `_rope_scaling`)."""
    factor = float(factors.max())
    smooth = (1 / factors - 1 / factor) / (1 - 1 / factor)
    inside = (smooth > 1e-6) & (smooth < 1 - 1e-6)
    ends: list[tuple[float, float]] = []  # longest and shortest wavelength of the step
    if original:
        ends.append((original, original / 4))  # Meta's own low = 1, high = 4
    if inside.sum() > 1:  # smooth = slope / wave - offset
        slope, offset = np.polyfit(1 / waves[inside], smooth[inside], 1)
        if slope > 0 > offset:
            ends.append((float(slope / -offset), float(slope / (1 - offset))))
    elif inside.any():  # one point tells no width
        for width in (4.0, 2.0, 1.5, 1.2, 1.1, 1.05):
            longest = float(waves[inside][0] * (1 + (width - 1) * smooth[inside][0]))
            ends.append((longest, longest / width))
    elif smooth[0] > 0.5:  # a jump: anywhere between two wavelengths
        before, after = waves[smooth > 0.5][-1], waves[smooth < 0.5][0]
        ends.append((float(after * (before / after) ** (1 / 3)), float(before * (after / before) ** (1 / 3))))
    for longest, shortest in ends:
        given = original or max(1, round(longest))
        rounded, low, high = (float(f"{number:.6g}") for number in (factor, given / longest, given / shortest))
        yield RopeScaling(rounded, low, high, given)
