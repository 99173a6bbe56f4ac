"""The tokenizer in a GGUF file's metadata: written from a tokenizer.json, and made into one again.

Two kinds, under llama.cpp's names: "gpt2" is byte-level BPE (GPT-2, Llama 3), "llama" is SentencePiece's BPE (Llama 2).

The metadata has the words, their types, the ids of BOS and EOS and whether they are added, and the *name* of a way to
split text. It lacks the splitting expression and whether merges are skipped for a piece that is a word (llama.cpp has
both under the name), any normalizer but SentencePiece's spaces, dropout, how added tokens treat spaces, any template
but BOS and EOS, truncation, padding, and which words only pad the model's matrix (type UNUSED by convention).
`tokenizer_fields` refuses a tokenizer.json whose ids depend on any of it.

SentencePiece joins the two neighbours that make the word with the best score; a tokenizer.json has the same as pairs in
order (merges). llama.cpp uses scores; its converter writes merges too, and often scores without an order. So a file
written here has both, and of one that is read the merges count where there are any. Both give the same ids where the
merges hold every way to make each word, next to each other, as transformers makes them of a SentencePiece model.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, Keys, TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ..files import short
from ..geometries import fail
from ..texts import shortened
from ..tokenizer import NoTokenizer
from .metadata import AGAIN, FOLDER, Reader, kind_of_tokenizer, opened

BYTE_LEVEL, SENTENCEPIECE = "gpt2", "llama"

# Llama 3's expression (tokenizer.json of Meta-Llama-3-8B; llama.cpp has it under this name).
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_SPLITS = ("gpt-2", "llama-bpe")
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}

_SPACE = "\u2581"  # what SentencePiece has for a space
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
"""Words for the bytes of what no other word covers."""


@dataclass(frozen=True)
class TokenizerFields:
    """A BPE tokenizer as GGUF has it.

    `model` is BYTE_LEVEL or SENTENCEPIECE; `tokens` are all words by id, as many as the model's matrix has rows;
    `types` their `gguf.TokenType`; `merges` pairs with a space between, best first; `split` llama.cpp's name for how
    text is cut into pieces ("gpt-2" or "llama-bpe"; "default" of SentencePiece, which does not cut it).

    Of SentencePiece alone: `scores` by id (to write; a file that is read has merges, or they are made of its scores),
    `unknown` the id of <unk>, `space_prefix`: whether texts get a space first.
    """

    model: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    split: str
    scores: tuple[float, ...] = ()
    unknown: int | None = None
    space_prefix: bool = False
    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False


# --- from a tokenizer.json ---


def tokenizer_fields(
    tokenizer_json: str,
    *,
    vocab_size: int,
    bos: int | None = None,
    eos: int | None = None,
    where: Path | str = "tokenizer.json",
) -> TokenizerFields:
    """A tokenizer.json as GGUF metadata for a model with `vocab_size` rows; ids without a word become padding. Raises
    `CheckpointError` if the ids would differ: anything but byte-level BPE with the splitting of GPT-2 or Llama 3 and
    SentencePiece's BPE with the spaces of Llama 2, or something that GGUF cannot express (see the module)."""
    original = Tokenizer.from_str(tokenizer_json)
    original.no_truncation()
    original.no_padding()
    described = json.loads(original.to_str())
    model = described["model"]
    if model.get("type") != "BPE":
        fail(where, f"model.type = {short(model.get('type'))}, expected 'BPE'", FOLDER)
    words = {word_id: word for word, word_id in original.get_vocab(with_added_tokens=True).items()}
    if (largest := max(words, default=0)) >= vocab_size:
        problem = f"has the id {largest}, expected ids below the model's vocab_size = {vocab_size}"
        fail(where, problem, "take the tokenizer.json that belongs to the checkpoint")
    types = [TokenType.NORMAL if word_id in words else TokenType.UNUSED for word_id in range(vocab_size)]
    for word_id, token in original.get_added_tokens_decoder().items():
        types[word_id] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    fields = TokenizerFields(
        model=BYTE_LEVEL,
        tokens=tuple(words.get(word_id, f"[PAD{word_id}]") for word_id in range(vocab_size)),
        types=tuple(map(int, types)),
        merges=tuple(" ".join(pair) for pair in model["merges"]),
        split="",
        bos=bos,
        eos=eos,
    )
    candidates = [replace(fields, split=split) for split in _SPLITS]
    if model["byte_fallback"]:
        if missing := set(_BYTES) - set(fields.tokens):
            fail(where, f"model.byte_fallback without a word for the byte {min(missing)}", FOLDER)
        candidates = [_with_scores(fields, described)]
    differences = [_difference(described, json.loads(rebuilt(each).to_str())) for each in candidates]
    if None not in differences:  # what is in the way once the splitting is right, if either is
        fail(where, max(filter(None, differences), key=lambda text: not text.startswith("pre_tokenizer")), FOLDER)
    plain, full = (original.encode("a b", add_special_tokens=special).ids for special in (False, True))
    for add_bos, add_eos in itertools.product((False, True), repeat=2):
        if full == [bos] * add_bos + plain + [eos] * add_eos:
            return replace(candidates[differences.index(None)], add_bos=add_bos, add_eos=add_eos)
    fail(where, f"post_processor makes {full} of {plain}, expected at most BOS {bos} and EOS {eos}", FOLDER)


def _with_scores(fields: TokenizerFields, described: Mapping[str, Any]) -> TokenizerFields:
    """As SentencePiece's: a word's score is less the further behind the first pair is that makes it."""
    ids = {token: word_id for word_id, token in enumerate(fields.tokens)}
    unknown = ids.get(described["model"]["unk_token"])
    kinds = dict.fromkeys(_BYTES, TokenType.BYTE)
    if unknown is not None:
        kinds[fields.tokens[unknown]] = TokenType.UNKNOWN
    types = [int(kinds.get(token, kind)) for token, kind in zip(fields.tokens, fields.types, strict=True)]
    ranks = {merge.replace(" ", ""): -float(rank) for rank, merge in reversed([*enumerate(fields.merges)])}
    return replace(
        fields,
        model=SENTENCEPIECE,
        split="default",
        types=tuple(types),
        scores=tuple(
            0.0 if kind != TokenType.NORMAL else ranks.get(token, -float(len(fields.merges)))
            for token, kind in zip(fields.tokens, types, strict=True)
        ),
        unknown=unknown,
        space_prefix="Prepend" in json.dumps(described["normalizer"]),
    )


def _difference(original: Mapping[str, Any], copy: Mapping[str, Any]) -> str | None:
    """The first part of a tokenizer.json that decides about ids and differs in another one."""
    # With a word for every byte nothing is unknown.
    undecided = {"vocab", "unk_token", "fuse_unk"} if original["model"]["byte_fallback"] else {"vocab"}

    def decisive(described: Mapping[str, Any]) -> dict[str, Any]:
        model = {key: part for key, part in described["model"].items() if key not in undecided}
        # `normalized` says whether to look for it before or after the normalizer, which at most marks spaces
        added = sorted(described["added_tokens"], key=lambda token: token["id"])
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
    key = next((key for key in mine if mine[key] != theirs.get(key)), None)
    return None if key is None else f"{key} = {str(mine[key])[:300]}, which GGUF cannot say"


def add_tokenizer(writer: GGUFWriter, fields: TokenizerFields) -> None:
    """The tokenizer as metadata of a file."""
    writer.add_tokenizer_model(fields.model)
    writer.add_tokenizer_pre(fields.split)
    writer.add_token_list(fields.tokens)
    writer.add_token_types(fields.types)
    writer.add_token_merges(fields.merges)
    if fields.model == SENTENCEPIECE:
        writer.add_token_scores(fields.scores)
        writer.add_add_space_prefix(fields.space_prefix)
    for add, word_id in (
        (writer.add_unk_token_id, fields.unknown),
        (writer.add_bos_token_id, fields.bos),
        (writer.add_eos_token_id, fields.eos),
    ):
        if word_id is not None:
            add(word_id)
    writer.add_add_bos_token(fields.add_bos)
    writer.add_add_eos_token(fields.add_eos)


# --- to a tokenizer ---


def rebuilt(fields: TokenizerFields) -> Tokenizer:
    """The tokenizer that metadata describes; words of type UNUSED are padding and left out."""
    words = {
        word: word_id
        for word_id, (word, kind) in enumerate(zip(fields.tokens, fields.types, strict=True))
        if kind != TokenType.UNUSED
    }
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in fields.merges)]
    tokenizer = (_sentencepiece if fields.model == SENTENCEPIECE else _byte_level)(fields, words, merges)
    for word, kind in zip(fields.tokens, fields.types, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False)])
        elif kind == TokenType.USER_DEFINED:
            tokenizer.add_tokens([AddedToken(word, special=False, normalized=False)])
    before = [fields.bos] if fields.add_bos and fields.bos is not None else []
    after = [fields.eos] if fields.add_eos and fields.eos is not None else []
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*(fields.tokens[end] for end in before), "$A", *(fields.tokens[end] for end in after)],
            special_tokens=[(fields.tokens[end], end) for end in {*before, *after}],
        )
    return tokenizer


def _byte_level(fields: TokenizerFields, words: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    llama3 = fields.split == "llama-bpe"
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=merges, ignore_merges=llama3))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not llama3)
    if llama3:
        split = pre_tokenizers.Split(Regex(_LLAMA3), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, tokenizer.pre_tokenizer])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(fields: TokenizerFields, words: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    unknown = None if fields.unknown is None else fields.tokens[fields.unknown]
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    steps: list[decoders.Decoder] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if fields.space_prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), tokenizer.normalizer])
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def read_tokenizer_fields(reader: Reader) -> TokenizerFields:
    """The tokenizer in a GGUF file's metadata. Raises `CheckpointError` where it is neither byte-level nor
    SentencePiece's BPE, splits text in an unknown way, or contradicts itself."""
    keys, path = Keys.Tokenizer, reader.path
    model = reader.value(keys.MODEL, str)
    if model not in (BYTE_LEVEL, SENTENCEPIECE):
        expected = "'gpt2' (byte-level BPE) or 'llama' (SentencePiece)"
        fail(path, f"{keys.MODEL} = {short(model)}, expected {expected}", FOLDER)
    is_sentencepiece, split = model == SENTENCEPIECE, "default"
    if not is_sentencepiece:
        name = reader.value(keys.PRE, str)
        split = _ALIASES.get(name, name)
        if split not in _SPLITS:
            fail(path, f"{keys.PRE} = {short(name)}, expected one of {', '.join((*_SPLITS, *_ALIASES))}", FOLDER)
    tokens: list[str] = _list(reader, keys.LIST, str)
    types: list[int] = _list(reader, keys.TOKEN_TYPE, int, [int(TokenType.NORMAL)] * len(tokens))
    if len(tokens) != len(types):
        fail(path, f"{keys.TOKEN_TYPE} has {len(types)} entries, expected {len(tokens)}, one a token", AGAIN)
    used = Counter(token for token, kind in zip(tokens, types, strict=True) if kind != TokenType.UNUSED)
    for token, count in used.most_common(1):
        if count > 1:
            fail(path, f"{keys.LIST} has {short(token)} twice, expected every token once", AGAIN)
    merges: list[str] = _list(reader, keys.MERGES, str, [])
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= used.keys():
            fail(path, f"{keys.MERGES} has {short(merge)}, expected two tokens that make a third", AGAIN)
    if is_sentencepiece and not merges:
        merges = _merges(path, tokens, types, _list(reader, keys.SCORES, float))

    def end(key: str) -> int | None:
        word_id: int = reader.value(key, int, -1)
        if word_id >= len(tokens):
            fail(path, f"{key} = {word_id}, expected an id below {len(tokens)}", AGAIN)
        return None if word_id < 0 else word_id

    return TokenizerFields(
        model=model,
        tokens=tuple(tokens),
        types=tuple(types),
        merges=tuple(merges),
        split=split,
        unknown=end(keys.UNK_ID) if is_sentencepiece else None,
        # the defaults are llama.cpp's own
        space_prefix=is_sentencepiece and reader.value(keys.ADD_PREFIX, bool, True),
        bos=end(keys.BOS_ID),
        eos=end(keys.EOS_ID),
        add_bos=reader.value(keys.ADD_BOS, bool, is_sentencepiece or split == "llama-bpe"),
        add_eos=reader.value(keys.ADD_EOS, bool, False),
    )


def _list(reader: Reader, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
    """The entries of a list, all of one kind; raises as `Reader.value` does."""
    entries: list[Any] = reader.value(key, list, default)
    for entry in entries:
        if not isinstance(entry, kind) or isinstance(entry, bool):
            fail(reader.path, f"{key} has {short(entry)}, expected {kind.__name__} in every place", AGAIN)
    return entries


def _merges(path: Path, tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[str]:
    """Scores as merges: every way to make each word of two others, the words with the best scores first. Raises
    `CheckpointError` for scores that do not order the words."""
    key = Keys.Tokenizer.SCORES
    if len(scores) != len(tokens):
        fail(path, f"{key} has {len(scores)} entries, expected {len(tokens)}, one a token", AGAIN)
    of_bytes = set(_BYTES)
    normal = {
        token: score
        for token, kind, score in zip(tokens, types, scores, strict=True)
        if kind == TokenType.NORMAL and token not in of_bytes
    }
    ways: dict[str, list[str]] = {}
    for token in normal:
        halves = ((token[:at], token[at:]) for at in range(len(token) - 1, 0, -1))
        ways[token] = [f"{left} {right}" for left, right in halves if left in normal and right in normal]
    made = sorted((token for token in ways if ways[token]), key=lambda token: -normal[token])
    for better, worse in itertools.pairwise(made):
        if not normal[better] > normal[worse] or not math.isfinite(normal[worse]):
            problem = f"{key} is {normal[better]:g} for {short(better)} and {normal[worse]:g} for {short(worse)}"
            fail(path, f"{problem}, expected another one for each word that is made of others", FOLDER)
    return [way for token in made for way in ways[token]]


def tokenizer_json(path: Path) -> str:
    """A tokenizer.json rebuilt from a GGUF file's metadata; raises as `opened` and `read_tokenizer_fields`, and
    `NoTokenizer` where there is none."""
    reader = opened(path)
    if not kind_of_tokenizer(reader):
        raise NoTokenizer(f"{path}: no tokenizer; {FOLDER}")
    fields = read_tokenizer_fields(reader)
    try:
        return rebuilt(fields).to_str()
    except Exception as error:  # the library raises plain Exception
        fail(path, f"{Keys.Tokenizer.LIST} makes no tokenizer ({shortened(str(error))})", AGAIN)
