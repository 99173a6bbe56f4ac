"""What a GGUF file says besides its weights: the shape of the model, its RoPE, and its tokenizer.

GGUF is llama.cpp's file format; keys and values follow its converter (convert_hf_to_gguf.py, class LlamaModel).

Of a tokenizer the metadata has the words, their types, the merges, the ids of BOS and EOS and whether they are added,
and the *name* of a way to split text. It does not have, so that nobody can tell it from there: the splitting
expression itself and whether merges are skipped for a piece that is a word (both are what llama.cpp has under the
name), a normalizer, dropout, how added tokens treat the spaces around them, any template but BOS and EOS, truncation,
padding, and which of the words above the last used id are padding for the model's matrix (type UNUSED by convention).
`tokenizer_fields` refuses a tokenizer.json whose ids depend on any of it.

Importing this module does not import torch.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from gguf import GGUFReader, GGUFValueType, Keys, TokenType
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from llama_workbench.variants.config import LlamaConfig, RopeScaling
from llama_workbench.variants.engines.gguf_shape import ROPE_FACTORS, rope_factors, wavelengths

from .geometries import DataError

ARCHITECTURE = "llama"

_AGAIN = "fetch the file again"
_CONVERT = "write it with llama.cpp's convert_hf_to_gguf.py from a Llama checkpoint"
_NO_VARIANT = "no variant computes this; take another model"
_FOLDER = "take the Hugging Face folder of this model instead"


class GGUFError(DataError):
    """A GGUF file cannot be used or written. The text names file and key or tensor, what was found, and the fix."""


def is_gguf(path: Path | str) -> bool:
    """Whether a checkpoint's path is meant as a GGUF file (and not as a folder)."""
    return Path(path).suffix.lower() == ".gguf"


class _Reader(GGUFReader):
    """The library's reader, made strict and fast.

    It takes a slice beyond the end of the file for a short one and counts on, to 2^64 where a length is damaged.
    And it makes four arrays an entry of a list, which takes seconds for the words of a tokenizer.
    """

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
            return super()._get_field_parts(orig_offs, raw_type)
        content, parts, end = np.asarray(self.data), [], start
        for _ in range(count):
            self._demand(end + 8)
            length = int.from_bytes(content[end : end + 8].tobytes(), sys.byteorder)
            self._demand(end + 8 + length)
            parts.append(content[end + 8 : end + 8 + length])
            end += 8 + length
        return end - orig_offs, parts, list(range(count)), types


def opened(path: Path) -> GGUFReader:
    """Metadata and tensors of a GGUF file, memory-mapped (private pages: nothing that is done to them is written).

    Raises `GGUFError` for a file that is missing, empty, truncated, damaged, one of several, of another byte order, or
    not GGUF 2 or 3.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if start == b"version ":
            _fail(path, "a Git LFS pointer, not the file", "run: git lfs pull")
        if start[:4] != b"GGUF":
            _fail(path, f"not a GGUF file (starts with {start[:4]!r}, expected b'GGUF')", _CONVERT)
        reader = _Reader(path, "c")
    except OSError as error:
        _fail(path, f"cannot be read ({error.strerror})", "check the path")
    except EOFError as error:
        _fail(path, str(error), _AGAIN)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        if isinstance(error, GGUFError):
            raise
        _fail(path, f"damaged ({error})", _AGAIN)
    if reader.byte_order != "I":
        _fail(path, "written for the other byte order", "convert it: python -m gguf.scripts.gguf_convert_endian")
    if (parts := value(path, reader, Keys.Split.LLM_KV_SPLIT_COUNT, int, 1)) > 1:
        _fail(path, f"one of {parts} parts, expected a whole model", "join them: llama-gguf-split --merge FIRST OUT")
    return reader


def _fail(where: Path | str, problem: str, fix: str) -> NoReturn:
    raise GGUFError(f"{where}: {problem}; {fix}")


def value(path: Path, reader: GGUFReader, key: str, kind: type, default: Any = None) -> Any:
    """The value of a key as int, float, bool, str or list; `default` where there is none, an error without one."""
    field = reader.get_field(key)
    if field is None:
        if default is None:
            _fail(path, f"{key} is missing", _AGAIN)
        return default
    try:
        found = field.contents()
    except UnicodeDecodeError as error:
        _fail(path, f"{key} is not UTF-8 ({error})", _AGAIN)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        _fail(path, f"{key} = {found!r}, expected {kind.__name__}", _AGAIN)
    return found


# --- the model's shape ---

# Keys that change what is computed, with the values that change nothing. {} is the architecture.
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


def llama_config(path: Path, reader: GGUFReader) -> LlamaConfig:
    """The model's shape. Numbers that GGUF keeps in float32 come back as the shortest decimal that is the same one.

    Raises `GGUFError` for another architecture, a key that is missing or no positive number, or one that asks for
    what no variant computes.
    """
    name = value(path, reader, Keys.General.ARCHITECTURE, str)
    if name != ARCHITECTURE:
        _fail(path, f"{Keys.General.ARCHITECTURE} = {name!r}, expected {ARCHITECTURE!r}", _NO_VARIANT)
    for template, neutral in _NEUTRAL.items():
        key = template.format(arch=ARCHITECTURE)
        if (field := reader.get_field(key)) is not None and field.contents() not in neutral:
            _fail(path, f"{key} = {field.contents()!r}, expected {neutral[-1]!r}", _NO_VARIANT)

    def number(template: str, default: int | None = None) -> int:
        key = template.format(arch=ARCHITECTURE)
        field = reader.get_field(key)
        found: Any = default if field is None else field.contents()
        if isinstance(found, list) and len(set(found)) == 1:
            found = found[0]
        if isinstance(found, list):
            _fail(path, f"{key} = {found}, expected the same in every layer", _NO_VARIANT)
        if found is None:
            _fail(path, f"{key} is missing", _AGAIN)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            _fail(path, f"{key} = {found!r}, expected a positive integer", _AGAIN)
        return found

    def real(template: str, default: float | None = None) -> float:
        key = template.format(arch=ARCHITECTURE)
        found = value(path, reader, key, float, default)
        if not 0 < found < math.inf:
            _fail(path, f"{key} = {found!r}, expected a positive number", _AGAIN)
        return float(str(np.float32(found)))

    heads, hidden = number(Keys.Attention.HEAD_COUNT), number(Keys.LLM.EMBEDDING_LENGTH)
    key_value_heads = number(Keys.Attention.HEAD_COUNT_KV, heads)
    head_dim = number(Keys.Attention.KEY_LENGTH, hidden // heads if hidden % heads == 0 else None)
    head_count = Keys.Attention.HEAD_COUNT_KV.format(arch=ARCHITECTURE)
    if heads % key_value_heads:
        _fail(path, f"{head_count} = {key_value_heads}, expected a divisor of {heads} heads", _AGAIN)
    if head_dim % 2:
        _fail(path, f"heads of {head_dim} values, expected an even number (RoPE turns pairs)", _AGAIN)
    for template in (Keys.Attention.VALUE_LENGTH, Keys.Rope.DIMENSION_COUNT):
        if (other := number(template, head_dim)) != head_dim:
            key = template.format(arch=ARCHITECTURE)
            _fail(path, f"{key} = {other}, expected {head_dim} as in the keys", _NO_VARIANT)
    theta = real(Keys.Rope.FREQ_BASE, 10_000.0)
    embedding = next((tensor for tensor in reader.tensors if tensor.name == "token_embd.weight"), None)
    if embedding is None:
        _fail(path, "missing tensor token_embd.weight", _AGAIN)
    original = Keys.Rope.SCALING_ORIG_CTX_LEN.format(arch=ARCHITECTURE)
    return LlamaConfig(
        vocab_size=int(embedding.shape[-1]),
        hidden_size=hidden,
        intermediate_size=number(Keys.LLM.FEED_FORWARD_LENGTH),
        num_hidden_layers=number(Keys.LLM.BLOCK_COUNT),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        max_position_embeddings=number(Keys.LLM.CONTEXT_LENGTH),
        rms_norm_eps=real(Keys.Attention.LAYERNORM_RMS_EPS),
        rope_theta=theta,
        rope_scaling=_rope_scaling(path, reader, theta, head_dim, value(path, reader, original, int, 0) or None),
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )


def _rope_scaling(
    path: Path, reader: GGUFReader, theta: float, head_dim: int, original: int | None
) -> RopeScaling | None:
    """Llama-3 scaling that gives the factors in the file.

    The formula knows `original`, `low` and `high` only as original/low and original/high, so any of them with the same
    quotients is the same RoPE. `original` is taken from the file (ours have it, those of llama.cpp's converter do not)
    or such that low is 1, as in all of Meta's models. With fewer than two wavelengths in the step its ends are not told
    either; any that give the same factors will do.
    """
    tensor = next((tensor for tensor in reader.tensors if tensor.name == ROPE_FACTORS), None)
    if tensor is None:
        return None
    where = f"{path}: {ROPE_FACTORS}"
    if tensor.tensor_type.name != "F32" or tensor.data.shape != (head_dim // 2,):
        said = f"{tensor.tensor_type.name} of shape {list(tensor.data.shape)}, expected F32 of shape [{head_dim // 2}]"
        _fail(where, said, _AGAIN)
    factors = tensor.data.astype(np.float64)
    if np.all(factors == 1):
        return None
    unknown = "not Llama-3 scaling (1 for short wavelengths, one factor for long ones, a smooth step between)"
    if not (np.all(np.isfinite(factors)) and np.all(factors >= 1)):
        _fail(where, unknown, _NO_VARIANT)
    for scaling in _guesses(factors, wavelengths(theta, head_dim), original):
        if np.allclose(rope_factors(scaling, theta, head_dim), factors, rtol=1e-5, atol=0):
            return scaling
    _fail(where, unknown, _NO_VARIANT)


def _guesses(factors: NDArray[np.float64], waves: NDArray[np.float64], original: int | None) -> Iterator[RopeScaling]:
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
        yield RopeScaling(
            factor=float(f"{factor:.6g}"),
            low_freq_factor=float(f"{given / longest:.6g}"),
            high_freq_factor=float(f"{given / shortest:.6g}"),
            original_max_position_embeddings=given,
        )


# --- the tokenizer ---

# Llama 3's expression (tokenizer.json of Meta-Llama-3-8B; llama.cpp has it under this name).
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_SPLITS = ("gpt-2", "llama-bpe")
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}


@dataclass(frozen=True)
class TokenizerFields:
    """A byte-level BPE tokenizer as GGUF has it.

    `tokens` are all words by id, as many as the model's matrix has rows; `types` their `gguf.TokenType`; `merges` pairs
    with a space between; `split` llama.cpp's name for how text is cut into pieces ("gpt-2" or "llama-bpe").
    """

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    split: str
    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False


def tokenizer_fields(
    tokenizer_json: str, *, vocab_size: int, bos: int | None = None, eos: int | None = None
) -> TokenizerFields:
    """A tokenizer.json as GGUF metadata for a model with `vocab_size` rows; ids without a word become padding.

    Raises `GGUFError` if the ids would not be the same: anything but byte-level BPE with the splitting of GPT-2 or
    Llama 3, or something that GGUF cannot say (see the module).
    """
    where, original = "tokenizer.json", Tokenizer.from_str(tokenizer_json)
    original.no_truncation()
    original.no_padding()
    described = json.loads(original.to_str())
    kind = described["model"].get("type")
    if kind != "BPE":
        _fail(where, f"model.type = {kind!r}, expected 'BPE'", _FOLDER)
    words = {word_id: word for word, word_id in original.get_vocab(with_added_tokens=True).items()}
    if max(words) >= vocab_size:
        said = f"has the id {max(words)}, expected ids below the model's vocab_size = {vocab_size}"
        _fail(where, said, "take the tokenizer.json that belongs to the checkpoint")
    added = original.get_added_tokens_decoder()
    types = [TokenType.NORMAL if word_id in words else TokenType.UNUSED for word_id in range(vocab_size)]
    for word_id, token in added.items():
        types[word_id] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    fields = [
        TokenizerFields(
            tokens=tuple(words.get(word_id, f"[PAD{word_id}]") for word_id in range(vocab_size)),
            types=tuple(map(int, types)),
            merges=tuple(" ".join(pair) for pair in described["model"]["merges"]),
            split=split,
            bos=bos,
            eos=eos,
        )
        for split in _SPLITS
    ]
    differences = [_difference(described, json.loads(rebuilt(field).to_str())) for field in fields]
    for field, difference in zip(fields, differences, strict=True):
        if difference is None:
            add_bos, add_eos = _added_ends(original, bos, eos)
            return replace(field, add_bos=add_bos, add_eos=add_eos)
    # What is in the way once the splitting is right, if either is.
    _fail(where, max(filter(None, differences), key=lambda text: not text.startswith("pre_tokenizer")), _FOLDER)


def _added_ends(tokenizer: Tokenizer, bos: int | None, eos: int | None) -> tuple[bool, bool]:
    """Whether the tokenizer's template puts BOS before a text and EOS behind it."""
    plain, full = (tokenizer.encode("a b", add_special_tokens=special).ids for special in (False, True))
    for add_bos, add_eos in itertools.product((False, True), repeat=2):
        if full == [bos] * add_bos + plain + [eos] * add_eos:
            return add_bos, add_eos
    _fail(
        "tokenizer.json", f"post_processor makes {full} of {plain}, expected at most BOS {bos} and EOS {eos}", _FOLDER
    )


def _difference(original: Mapping[str, Any], copy: Mapping[str, Any]) -> str | None:
    """The first part of a tokenizer.json that decides about ids and differs in another one."""

    def decisive(described: Mapping[str, Any]) -> dict[str, Any]:
        model = {key: part for key, part in described["model"].items() if key != "vocab"}
        added = sorted(described["added_tokens"], key=lambda token: token["id"])
        # `normalized` says whether to look before or after the normalizer, and there is none
        tokens = [{key: part for key, part in token.items() if key != "normalized"} for token in added]
        split = json.dumps(described["pre_tokenizer"]).replace('"trim_offsets": false', '"trim_offsets": true')
        return {
            "pre_tokenizer": split,
            "normalizer": described["normalizer"],
            "decoder": (described["decoder"] or {}).get("type"),
            "added_tokens": tokens,
            **{f"model.{key}": part or None for key, part in model.items()},
        }

    mine, theirs = decisive(original), decisive(copy)
    for key in mine:
        if mine[key] != theirs.get(key):
            return f"{key} = {str(mine[key])[:300]}, which GGUF cannot say"
    return None


def rebuilt(fields: TokenizerFields) -> Tokenizer:
    """The tokenizer that metadata describes; words of type UNUSED are padding and left out."""
    words = {
        word: word_id
        for word_id, (word, kind) in enumerate(zip(fields.tokens, fields.types, strict=True))
        if kind != TokenType.UNUSED
    }
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in fields.merges)]
    llama3 = fields.split == "llama-bpe"
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=merges, ignore_merges=llama3))
    if llama3:
        steps = [
            pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    for word, kind in zip(fields.tokens, fields.types, strict=True):
        if kind == TokenType.CONTROL:
            tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False)])
        elif kind == TokenType.USER_DEFINED:
            tokenizer.add_tokens([AddedToken(word, special=False, normalized=False)])
    before = [fields.bos] if fields.add_bos and fields.bos is not None else []
    after = [fields.eos] if fields.add_eos and fields.eos is not None else []
    if before or after:
        names = {end: fields.tokens[end] for end in (*before, *after)}
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*(names[end] for end in before), "$A", *(names[end] for end in after)],
            special_tokens=[(name, end) for end, name in names.items()],
        )
    return tokenizer


def read_tokenizer_fields(path: Path, reader: GGUFReader) -> TokenizerFields:
    """The tokenizer in a GGUF file's metadata.

    Raises `GGUFError` where it is no byte-level BPE (SentencePiece has other metadata and other rules), splits text in
    a way that is not known here, or contradicts itself.
    """
    keys = Keys.Tokenizer
    if (kind := value(path, reader, keys.MODEL, str)) != "gpt2":
        _fail(path, f"{keys.MODEL} = {kind!r}, expected 'gpt2' (byte-level BPE)", _FOLDER)
    name = value(path, reader, keys.PRE, str)
    split = _ALIASES.get(name, name)
    if split not in _SPLITS:
        _fail(path, f"{keys.PRE} = {name!r}, expected one of {', '.join((*_SPLITS, *_ALIASES))}", _FOLDER)
    tokens = value(path, reader, keys.LIST, list)
    types = value(path, reader, keys.TOKEN_TYPE, list, [int(TokenType.NORMAL)] * len(tokens))
    if len(tokens) != len(types):
        _fail(path, f"{keys.TOKEN_TYPE} has {len(types)} entries, expected {len(tokens)}, one a token", _AGAIN)
    used = [token for token, kind in zip(tokens, types, strict=True) if kind != TokenType.UNUSED]
    if len(set(used)) != len(used):
        again = Counter(used).most_common(1)[0][0]
        _fail(path, f"{keys.LIST} has {again!r} twice, expected every token once", _AGAIN)
    merges, known = value(path, reader, keys.MERGES, list, []), set(used)
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= known:
            _fail(path, f"{keys.MERGES} has {merge!r}, expected two tokens that make a third", _AGAIN)

    def end(key: str) -> int | None:
        found: int = value(path, reader, key, int, -1)
        if found >= len(tokens):
            _fail(path, f"{key} = {found}, expected an id below {len(tokens)}", _AGAIN)
        return None if found < 0 else found

    return TokenizerFields(
        tokens=tuple(tokens),
        types=tuple(types),
        merges=tuple(merges),
        split=split,
        bos=end(keys.BOS_ID),
        eos=end(keys.EOS_ID),
        # llama.cpp's own default for the name
        add_bos=value(path, reader, keys.ADD_BOS, bool, split == "llama-bpe"),
        add_eos=value(path, reader, keys.ADD_EOS, bool, False),
    )


def tokenizer_json(path: Path) -> str:
    """The text of a tokenizer.json rebuilt from a GGUF file's metadata; raises as `opened` and the above do."""
    return rebuilt(read_tokenizer_fields(path, opened(path))).to_str()
