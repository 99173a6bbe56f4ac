"""One byte-level BPE vocabulary, learnt here, in tokenizers and in tiktoken."""

from __future__ import annotations

import random
from functools import cache

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SIZE = 4096

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How both split a text: that of GPT-2."""

SYLLABLES = [first + second for first in "bdfghjklmnprstw" for second in "aeiou"]


def words(draw: random.Random, count: int) -> str:
    """So many words, of which short ones are usual, as in a language."""
    parts = []
    for _ in range(count):
        length = min(1 + int(draw.expovariate(0.7)), 6)
        parts.append("".join(draw.choices(SYLLABLES, k=length)) + draw.choice(("", "", "", ",", ".")))
    return " ".join(parts)


def short_text(seed: int) -> str:
    """About 116 letters."""
    return words(random.Random(seed), 22)


def long_text(seed: int) -> str:
    """About 1,660 letters."""
    return words(random.Random(seed), 308)


@cache
def learnt() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([words(random.Random(number), 400) for number in range(40)], trainer)
    return tokenizer


def bytes_of_letters() -> dict[str, int]:
    """The letter that stands for each byte in such a vocabulary → the byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + number): byte for number, byte in enumerate(moved)}


def by_tokenizers():
    tokenizer = learnt()

    def call(text: str) -> list[int]:
        return tokenizer.encode(text).ids

    return call


def by_tiktoken():
    letters = bytes_of_letters()
    ranks = {bytes(letters[letter] for letter in token): number for token, number in learnt().get_vocab().items()}
    encoding = tiktoken.Encoding("learnt", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    def call(text: str) -> list[int]:
        return encoding.encode_ordinary(text)

    return call
