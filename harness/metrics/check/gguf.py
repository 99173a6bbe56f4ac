"""Two checks about GGUF: that a file of ours is the model it was written from, and that its tokenizer is too.

Each gives one `(case, passed, detail)` a case, and writes below `cache` only. Where llama-cpp-python is installed,
llama.cpp reads the same files, as cases of its own ("... in llama.cpp").
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from llama_workbench import variants
from llama_workbench.datasets import checkpoints, geometries, tokenizer
from llama_workbench.datasets.geometries import Geometry
from llama_workbench.datasets.gguf import files as gguf_files
from llama_workbench.datasets.gguf import tokenizer as gguf_tokenizer
from llama_workbench.variants.config import LlamaConfig, RopeScaling

Case = tuple[str, bool, str]

# Largest difference of logits that may follow, as a share of the largest logit. Rounding to F16 moves a weight by
# 2^-11 of itself, to Q8_0 by 1/254 of the largest of 32; a model as shallow as these adds up a few of either.
TOLERANCE = {"F32": 0.0, "F16": 0.005, "Q8_0": 0.05}
TOLERANCE_LLAMA_CPP = 1e-4


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


def check_gguf_loads(cache: Path, seed: int) -> Iterator[Case]:
    """Each geometry written in each format and read back: same config, weights and logits as the folder's.

    F32 must be the same to the bit, the others have every weight within the format's own rounding and logits within
    `TOLERANCE` of the largest. llama.cpp sums in another order: `TOLERANCE_LLAMA_CPP`.
    """
    for geometry in gguf_geometries():
        folder = checkpoints.synthesize(geometry, seed=seed, cache=cache)
        original = checkpoints.load(folder, cache=cache)
        tokens = torch.randint(geometry.config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(seed))
        expected = _logits(original, tokens)
        for form in gguf_files.FORMATS:
            with TemporaryDirectory(dir=cache, prefix=".gguf-") as temporary:
                file = checkpoints.write_gguf(
                    folder, Path(temporary) / f"{geometry.name}.gguf", format=form, cache=cache
                )
                read = checkpoints.load(file, cache=Path(temporary))
                if form == "F32" and (theirs := _llama_cpp(file)) is not None:
                    logits = torch.stack([_llama_cpp_logits(theirs, row) for row in tokens])
                    yield f"{geometry.name} F32 in llama.cpp", *_close(logits, expected, TOLERANCE_LLAMA_CPP)
                passed, detail = _close(_logits(read, tokens), expected, TOLERANCE[form])
                wrong = _wrong_weight(original, read, form)
            problems = [text for text in (wrong, _first_difference(original.config, read.config)) if text]
            yield f"{geometry.name} {form}", passed and not problems, "; ".join([*problems, detail])


def _llama_cpp(file: Path) -> Any:
    """A file opened by llama.cpp; None where that is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    f32 = llama_cpp.GGML_TYPE_F32  # keys and values, which it would keep in F16
    return llama_cpp.Llama(
        str(file), n_ctx=64, n_threads=1, n_gpu_layers=0, type_k=f32, type_v=f32, logits_all=True, verbose=False
    )


def _llama_cpp_logits(model: Any, tokens: Tensor) -> Tensor:
    """[V] of the last of `tokens` [T]."""
    model.reset()
    model.eval(tokens.tolist())
    return torch.tensor(model.scores[len(tokens) - 1], dtype=torch.float64)


def _close(logits: Tensor, expected: Tensor, allowed: float) -> tuple[bool, str]:
    """Whether logits differ by no more than this share of the largest."""
    difference = (logits - expected).abs().max().item() / expected.abs().max().item()
    passed = difference <= allowed
    more = "" if passed else f", expected at most {allowed:g}"
    return passed, f"largest relative error of a logit {difference:.2g}{more}"


def _logits(checkpoint: checkpoints.Checkpoint, tokens: Tensor) -> Tensor:
    """[B, V] of the last of `tokens` [B, T], cut into two calls so that a cache of turned keys is used too."""
    with torch.inference_mode():
        model = variants.get(variants.MODULAR).build(checkpoint.config, checkpoint.weights, max_length=tokens.shape[1])
        model.forward(tokens[:, :-3], 0)
        return model.forward(tokens[:, -3:], tokens.shape[1] - 3).double()


def _wrong_weight(original: checkpoints.Checkpoint, read: checkpoints.Checkpoint, form: gguf_files.Format) -> str:
    """The first weight that is not the original one as the format rounds it."""
    for name, weight in original.weights.items():
        off = (read.weights[name].double() - weight.double()).abs()
        if not bool((off <= rounding(weight, form)).all()):  # NaN is no less than anything
            return f"{name} is off by {off.max().item():.2g}"
    return ""


def rounding(weight: Tensor, form: gguf_files.Format) -> Tensor:
    """How far each value of a weight may be moved by a format, in its shape.

    F16 keeps 11 bits (steps of 2^-24 below 2^-14). Q8_0 keeps 8 bits of each value relative to the largest of its 32,
    whose 127th part is itself kept in F16.
    """
    values = weight.double().abs()
    if form == "F32" or weight.ndim == 1:
        return torch.zeros_like(values)
    if form == "F16" or weight.shape[-1] % 32:
        return values * 2.0**-11 + 2.0**-25
    step = values.unflatten(-1, (-1, 32)).amax(-1, keepdim=True) / 127
    return (step / 2 + 127 * (step * 2.0**-11 + 2.0**-25)).expand(*step.shape[:-1], 32).flatten(-2) * (1 + 1e-6)


def _first_difference(expected: LlamaConfig, read: LlamaConfig) -> str:
    pairs = ((key, vars(read)[key], value) for key, value in vars(expected).items())
    return next((f"config {key} = {ours!r}, expected {value!r}" for key, ours, value in pairs if ours != value), "")


EDGE_CASES = {
    "empty": ["", "\u200b", "\ufeff"],
    "spaces": [" ", "   ", " " * 200, "\t", " \t \u00a0\u2003\u3000 ", "a ", " a", "a  b"],
    "newlines": ["\n", "\r\n", "\n\n\n", "a\n b\r\n\r\nc\u2028d\u2029e\u0085f", " \n ", "\n  x"],
    "combining marks": ["e\u0301 is \u00e9", "a" + "\u0301" * 40, "\u0301", "Z\u0351\u036b\u0343", "क्षि नमस्ते", "กำ"],
    "emoji": ["👩‍👩‍👧‍👦", "🦙🏽", "🏳️‍🌈 🇩🇪🇫🇷", "👍" * 30, "❤️‍🔥", "1️⃣"],
    "CJK": ["東京都に住む", "你好，世界！", "한국어와 한글", "𠀀𪚥", "ｆｕｌｌ　ｗｉｄｔｈ １２３"],
    "right to left": ["مرحبا بالعالم", "שָׁלוֹם עולם", "abc \u202eרע\u202c def", "١٢٣٤"],
    "control characters": ["\x00", "a\x00b", "\x01\x1b[31m\x7f", "\x80\x9f", "\x0b\x0c\x1c"],
    "next to surrogates": ["\ud7ff\ue000", "\uffff\ufffe\ufffd", "\U0010ffff\U00010000"],
    "very long word": ["a" * 10_000, "ab" * 3_000, "x1" * 2_000, "é" * 3_000, "." * 5_000],
    "contractions and numbers": ["I'm, you'RE, he'll 'tis", "3.14159 1,000,000 ½ ² Ⅷ", "__init__(self, *args)"],
    "special tokens": ["<s>", "a</s>b", "<s><s></s>", "< s >", "<|begin_of_text|>"],
}
"""Texts on which tokenizers differ, by what is difficult about them."""


def check_tokenizer_matches(cache: Path, seed: int) -> Iterator[Case]:
    """tokenizer.json against the tokenizer that is rebuilt from a GGUF file's metadata: same ids, same text back.

    On the whole corpus, on `EDGE_CASES`, and on 2000 texts drawn from `seed`; byte-level BPE with all 8192 words and
    with 512, and SentencePiece's as Llama 2 has it.
    """
    tiny = geometries.get("tiny")
    texts = {"corpus": tokenizer.text(), **EDGE_CASES, "drawn": list(_drawn(seed))}
    for kind, rows in (("512 rows", 512), ("8292 rows", tokenizer.LARGEST_VOCABULARY + 100), ("SentencePiece", 4096)):
        geometry = replace(tiny, name=f"tiny-{rows}", config=replace(tiny.config, vocab_size=rows))
        folder = checkpoints.synthesize(geometry, seed=seed, cache=cache)
        content = (folder / tokenizer.FILE).read_text(encoding="utf-8")
        if kind == "SentencePiece":
            content = sentencepiece_like(rows - 100)
        fast = Tokenizer.from_str(content)
        with TemporaryDirectory(dir=cache, prefix=".gguf-") as temporary:
            file = Path(temporary) / "tokenizer.gguf"
            checkpoint = checkpoints.load(folder, cache=cache)
            bos, eos = fast.token_to_id("<s>"), fast.token_to_id("</s>")
            gguf_files.write(file, checkpoint.config, checkpoint.weights, content, bos=bos, eos=eos)
            ours = Tokenizer.from_str(gguf_tokenizer.tokenizer_json(file))
            theirs = _llama_cpp(file)
        wanted, rebuilt = (made.get_vocab(with_added_tokens=True) for made in (fast, ours))
        yield f"{kind}: vocabulary", rebuilt == wanted, f"{len(rebuilt)} of {len(wanted)} words"
        for name, some in texts.items():
            yield f"{kind}: {name}", *_compared(fast, ours, some)
            if theirs is not None:
                yield f"{kind}: {name} in llama.cpp", *_same_in(theirs, fast, some)


def sentencepiece_like(size: int) -> str:
    """A tokenizer.json as transformers makes it of Llama 2's SentencePiece model, of at most `size` words: <unk>, <s>
    and </s>, all bytes, words of spaces alone, and what byte pair encoding finds in the corpus.
    """
    from transformers.convert_slow_tokenizer import generate_merges

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(tokenizer.text(), trainers.BpeTrainer(vocab_size=size - 262, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    spaces = ["\u2581" * 2**power for power in (1, 2, 3)]
    merged = ["".join(pair) for pair in model["merges"]]
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = [word for word in model["vocab"] if len(word) == 1]
    vocab = {word: word_id for word_id, word in enumerate(dict.fromkeys([*specials, *spaces, *merged, *letters]))}
    scores = {word: -float(place) for place, word in enumerate(dict.fromkeys([*spaces, *merged, *letters]))}
    made = Tokenizer(
        models.BPE(vocab, generate_merges(vocab, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in specials[:3]])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    return made.to_str()


def _same_in(model: Any, fast: Tokenizer, texts: list[str]) -> tuple[bool, str]:
    count = 0
    for text in texts:
        expected = fast.encode(text, add_special_tokens=False).ids
        ids = model.tokenize(text.encode(), add_bos=False, special=True)
        if ids != expected:
            return False, f"{text[:40]!r}: ids {ids[:12]}, expected {expected[:12]}"
        count += len(ids)
    return True, f"{len(texts)} texts, {count} ids"


def _compared(fast: Tokenizer, ours: Tokenizer, texts: list[str]) -> tuple[bool, str]:
    count, lossless = 0, fast.normalizer is None
    for special in (False, True):
        expected = fast.encode_batch(texts, add_special_tokens=special)
        actual = ours.encode_batch(texts, add_special_tokens=special)
        for text, theirs, mine in zip(texts, expected, actual, strict=True):
            if mine.ids != theirs.ids:
                return False, f"{text[:40]!r}: ids {mine.ids[:12]}, expected {theirs.ids[:12]}"
            back, wanted = (made.decode(mine.ids, skip_special_tokens=False) for made in (ours, fast))
            if back != wanted or (lossless and back != text):
                return False, f"{text[:40]!r}: comes back as {back[:40]!r}"
            count += len(mine.ids)
    return True, f"{len(texts)} texts, {count // 2} ids"


def _drawn(seed: int) -> Iterator[str]:
    """Short texts of letters from all of Unicode, half of them near ASCII, where the words are."""
    rng = random.Random(f"tokenizer {seed}")
    for _ in range(2000):
        codes = [rng.randint(0, rng.choice((0x7F, 0x7F, 0x3000, 0x10FFFF))) for _ in range(rng.randrange(40))]
        yield "".join(chr(code if not 0xD800 <= code <= 0xDFFF else 0x20) for code in codes)
