"""The trained tokenizer and the prompts cut with a folder's own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from llama_workbench import ROOT
from llama_workbench.datasets.tokenizer import Prompts, TokenizerError, text, text_ids, train


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, cache: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text(train(512, cache=cache), encoding="utf-8")
    return tmp_path


def run_python(code: str, *arguments: object, **environment: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture(scope="module")
def tokenizer(cache: Path) -> Tokenizer:
    return Tokenizer.from_str(train(1000, cache=cache))


@settings(max_examples=200, deadline=None)
@given(original=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_comes_back_unchanged(tokenizer: Tokenizer, original: str) -> None:
    ids = tokenizer.encode(original, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == original


@pytest.mark.parametrize(
    "original", ["naïve café — 東京 🦙🏽", "\ttabs\r\n  and   spaces ", "مرحبا", "\x00\x7f", "a" * 300]
)
def test_difficult_texts_come_back_unchanged(original: str, tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode(original, add_special_tokens=False)
    assert tokenizer.decode(encoded.ids) == original


@pytest.mark.parametrize(("asked", "size"), [(258, 258), (512, 512), (4096, 4096), (32_000, 8192)])
def test_vocabulary_fits_the_model(asked: int, size: int, cache: Path) -> None:
    tokenizer = Tokenizer.from_str(train(asked, cache=cache))
    assert tokenizer.get_vocab_size() == size
    assert tokenizer.token_to_id("<s>") == 0
    assert tokenizer.token_to_id("</s>") == 1


def test_more_words_make_shorter_prompts(cache: Path) -> None:
    sample = text()[10]
    lengths = [len(Tokenizer.from_str(train(size, cache=cache)).encode(sample).ids) for size in (258, 512, 8192)]
    assert lengths[0] > 1.5 * lengths[1] > 1.5 * 1.5 * lengths[2]


def test_a_vocabulary_too_small_for_bytes_is_named(cache: Path) -> None:
    with pytest.raises(TokenizerError, match=r"vocab_size = 257, expected at least 258"):
        train(257, cache=cache)


def test_training_does_not_depend_on_process_threads_or_hashing(tmp_path: Path) -> None:
    code = (
        "import sys, hashlib; from pathlib import Path; from llama_workbench.datasets.tokenizer import train;"
        "print(hashlib.sha256(train(2000, cache=Path(sys.argv[1])).encode()).hexdigest())"
    )
    here = hashlib.sha256(train(2000, cache=tmp_path / "0").encode()).hexdigest()
    assert run_python(code, tmp_path / "1", RAYON_NUM_THREADS="1", PYTHONHASHSEED="1") == here
    assert run_python(code, tmp_path / "2", TOKENIZERS_PARALLELISM="false", PYTHONHASHSEED="2") == here


def test_training_is_kept(tmp_path: Path) -> None:
    first = train(300, cache=tmp_path)
    (kept,) = (tmp_path / "tokenizers").iterdir()
    kept.write_text("kept", encoding="utf-8")
    assert train(300, cache=tmp_path) == "kept" != first


def test_importing_it_does_not_import_torch() -> None:
    code = "import sys, llama_workbench.datasets.tokenizer; print('torch' in sys.modules, 'tokenizers' in sys.modules)"
    assert run_python(code) == "False False"


# --- prompts ---


def prompt_ids(
    checkpoint: Path, *, count: int, length: int, seed: int, vocab_size: int, cache: Path
) -> list[list[int]]:
    ids = text_ids(checkpoint, vocab_size=vocab_size, cache=cache)
    return Prompts(ids, batch=count, draw=str(seed)).tokens(0, length).tolist()


def test_prompts_are_pieces_of_the_text(folder: Path, cache: Path) -> None:
    prompts = prompt_ids(folder, count=20, length=100, seed=0, vocab_size=512, cache=cache)
    assert [len(prompt) for prompt in prompts] == [100] * 20
    assert all(type(word) is int and 0 <= word < 512 for prompt in prompts for word in prompt)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    whole = "".join(text())
    for prompt in prompts:  # its first words are drawn one by one
        assert tokenizer.decode(prompt[8:-4]).strip("\N{REPLACEMENT CHARACTER}") in whole  # a cut may split a letter
    assert len({tuple(prompt) for prompt in prompts}) == 20


def test_prompts_follow_the_seed(folder: Path, cache: Path) -> None:
    def prompts(seed: int, length: int = 30) -> list[list[int]]:
        return prompt_ids(folder, count=3, length=length, seed=seed, vocab_size=512, cache=cache)

    assert prompts(1) == prompts(1) != prompts(2)
    assert [prompt[:10] for prompt in prompts(1)] == prompts(1, length=10)


def test_a_prompt_longer_than_the_text_goes_on_at_its_start(folder: Path, cache: Path) -> None:
    (prompt,) = prompt_ids(folder, count=1, length=500_000, seed=0, vocab_size=512, cache=cache)
    period = len(np.load(next((cache / "tokenised").glob("*.npy"))))
    assert period < 400_000
    assert prompt[4 : 500_000 - period] == prompt[4 + period :]


def test_tokenised_text_is_kept_and_made_anew_when_damaged(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "cache"
    first = prompt_ids(folder, count=1, length=50, seed=0, vocab_size=512, cache=own)
    (kept,) = (own / "tokenised").iterdir()
    status = kept.stat()
    assert prompt_ids(folder, count=1, length=50, seed=0, vocab_size=512, cache=own) == first
    assert kept.stat().st_mtime_ns == status.st_mtime_ns
    whole = kept.read_bytes()
    for damaged in (b"", whole[:1000], b"junk", b"\x80\x04K\x01."):  # the last is a pickle
        kept.write_bytes(damaged)
        assert prompt_ids(folder, count=1, length=50, seed=0, vocab_size=512, cache=own) == first
        assert kept.read_bytes() == whole


def test_another_tokenizer_in_the_same_folder_gives_other_prompts(folder: Path, cache: Path) -> None:
    before = prompt_ids(folder, count=1, length=50, seed=0, vocab_size=4096, cache=cache)
    (folder / "tokenizer.json").write_text(train(4096, cache=cache), encoding="utf-8")
    assert prompt_ids(folder, count=1, length=50, seed=0, vocab_size=4096, cache=cache) != before


def test_truncation_in_a_folders_tokenizer_is_not_followed(folder: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = prompt_ids(folder, count=1, length=3000, seed=0, vocab_size=512, cache=tmp_path / "cache")
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=9000)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert prompt_ids(folder, count=1, length=3000, seed=0, vocab_size=512, cache=tmp_path / "cache") == plain


def test_ids_beyond_the_model_are_named(folder: Path, cache: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: gives the id 511, expected ids below .* = 500; put"):
        prompt_ids(folder, count=1, length=5, seed=0, vocab_size=500, cache=cache)


def test_without_a_tokenizer_prompts_are_ids_drawn_at_random_the_same_in_every_process(tmp_path: Path) -> None:
    ids = text_ids(tmp_path, vocab_size=512, cache=tmp_path / "one")
    assert set(ids.tolist()) == set(range(512)) and ids.dtype == np.int32
    assert np.array_equal(ids, text_ids(tmp_path, vocab_size=512, cache=tmp_path / "other"))
    (tmp_path / "tokenizer.json").symlink_to(tmp_path / "gone")  # as a cache of downloads that is not complete has it
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: cannot be read \(No such file or directory\).*copy it"):
        text_ids(tmp_path, vocab_size=512, cache=tmp_path / "one")


@pytest.mark.parametrize("content", ["", "{}", json.dumps({"version": "1.0", "model": {"type": "Unheard"}})])
def test_a_damaged_tokenizer_is_named(content: str, tmp_path: Path, cache: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: no tokenizer comes of it"):
        prompt_ids(tmp_path, count=1, length=5, seed=0, vocab_size=512, cache=cache)


def test_a_tokenizer_that_knows_no_word_of_the_text_is_named(tmp_path: Path, cache: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"\N{SNOWMAN}": 0}, []))  # unknown letters are dropped
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: gives no ids at all"):
        prompt_ids(tmp_path, count=1, length=5, seed=0, vocab_size=512, cache=cache)
