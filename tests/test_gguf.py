"""GGUF files: what is written is what llama.cpp expects, what is read is what was written, and bad files are named."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import (
    GGMLQuantizationType,
    GGUFEndian,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
    TokenType,
    dequantize,
    quantize,
)
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import CheckpointError, check, described, load, synthesize, write_gguf
from llama_workbench.datasets.gguf import files as gguf_files
from llama_workbench.datasets.gguf import tokenizer as gguf_tokenizer
from llama_workbench.datasets.tokenizer import TokenizerError, text_ids
from llama_workbench.harness.metrics.check import gguf as gguf_checks
from llama_workbench.variants.config import LlamaConfig, RopeScaling

GEOMETRIES = {geometry.name: geometry for geometry in gguf_checks.gguf_geometries()}


@pytest.fixture(scope="module", autouse=True)
def _a_tenth_of_the_text() -> Iterator[None]:
    """Words are learnt from it and prompts are cut from it: the whole takes ten times as long, and finds no more."""
    whole = tokenizer.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "text", lambda: whole()[::10])
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def written(name: str, cache: Path, format: gguf_files.Format = "F32") -> Path:
    """The GGUF file of a geometry, made once."""
    file = cache / f"{name}-{format}.gguf"
    if not file.exists():
        write_gguf(synthesize(GEOMETRIES[name], cache=cache), file, format=format, cache=cache)
    return file


# --- the two checks ---


@pytest.fixture(scope="module")
def cases(cache: Path) -> dict[str, tuple[bool, str]]:
    """What both checks say of the genuine code."""
    found = [*gguf_checks.check_gguf_loads(cache, seed=0), *gguf_checks.check_tokenizer_matches(cache, seed=0)]
    assert len({name for name, _, _ in found}) == len(found)
    return {name: (passed, detail) for name, passed, detail in found}


def test_model_and_tokenizer_are_the_same_from_gguf(cases: dict[str, tuple[bool, str]]) -> None:
    ours = {name: case for name, case in cases.items() if not name.endswith("in llama.cpp")}
    assert len(ours) == len(GEOMETRIES) * 3 + 3 * (len(gguf_checks.EDGE_CASES) + 3)
    assert {name: case for name, case in ours.items() if not case[0]} == {}
    for name, (_, detail) in ours.items():
        assert detail.endswith("of a logit 0") == name.endswith(" F32")


def test_llama_cpp_computes_the_same_and_has_the_same_words(cases: dict[str, tuple[bool, str]]) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed", exc_type=ImportError)
    theirs = {name: case for name, case in cases.items() if name.endswith("in llama.cpp")}
    assert len(theirs) == len(GEOMETRIES) + 3 * (len(gguf_checks.EDGE_CASES) + 2)
    assert {name: case for name, case in theirs.items() if not case[0]} == {}


def test_a_wrong_order_of_rows_fails_the_check(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_checks, "gguf_geometries", lambda: [GEOMETRIES["tiny-gqa"]])
    monkeypatch.setattr(gguf_files, "to_halves", lambda rows, head_dim: rows)
    ours = [case for case in gguf_checks.check_gguf_loads(cache, seed=0) if not case[0].endswith("in llama.cpp")]
    assert len(ours) == 3
    assert not any(passed for _, passed, _ in ours)
    assert all("layers.0.self_attn.q_proj.weight is off by" in detail for _, _, detail in ours)


def test_another_way_to_split_text_fails_the_check(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = tokenizer.text()[:5]
    monkeypatch.setattr(tokenizer, "text", lambda: pages)
    fields = gguf_tokenizer.tokenizer_fields(tokenizer.train(512, cache=cache), vocab_size=512)
    other = replace(fields, split="llama-bpe")
    monkeypatch.setattr(gguf_tokenizer, "read_tokenizer_fields", lambda *_: other)
    cases = gguf_checks.check_tokenizer_matches(cache, seed=0)
    failed = {name for name, passed, _ in cases if not passed}
    assert {"512 rows: newlines", f"{tokenizer.LARGEST_VOCABULARY + 100} rows: vocabulary"} <= failed
    assert "512 rows: vocabulary" not in failed


# --- the weights ---


def interleaved_scores(file: Path, config: LlamaConfig, x: torch.Tensor) -> torch.Tensor:
    """q·k of the first layer from a file's own rows [heads, T, T], as llama.cpp turns them: values 2i and 2i + 1 of a
    head are one complex number, multiplied by exp(i · position · θ^(-2i/D) / factor)."""
    tensors = {tensor.name: torch.from_numpy(tensor.data.copy()).double() for tensor in GGUFReader(file).tensors}
    pairs = torch.arange(config.head_dim // 2).double()
    speed = config.rope_theta ** (-2 * pairs / config.head_dim)
    if "rope_freqs.weight" in tensors:
        speed = speed / tensors["rope_freqs.weight"]
    positions = torch.arange(x.shape[0]).double()
    turn = torch.polar(torch.ones(x.shape[0], len(pairs)).double(), torch.outer(positions, speed))

    def turned(name: str, heads: int) -> torch.Tensor:
        rows = (x @ tensors[name].T).view(len(x), heads, config.head_dim // 2, 2)
        return torch.view_as_complex(rows).mul(turn[:, None]).transpose(0, 1)  # [heads, T, D/2]

    query = turned("blk.0.attn_q.weight", config.num_attention_heads)
    key = turned("blk.0.attn_k.weight", config.num_key_value_heads)
    key = key.repeat_interleave(config.num_attention_heads // config.num_key_value_heads, dim=0)
    return (query @ key.conj().transpose(1, 2)).real


@pytest.mark.parametrize("name", ["tiny", "tiny-gqa", "tiny-llama3", "tiny-wide-heads"])
def test_rows_are_in_llama_cpps_order(name: str, cache: Path) -> None:
    """What llama.cpp computes with the file is what transformers computes with the folder."""
    from transformers.models.llama import modeling_llama

    file, folder = written(name, cache), synthesize(GEOMETRIES[name], cache=cache)
    config = load(folder, cache=cache).config
    reference = modeling_llama.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64)
    x = torch.randn(20, config.hidden_size, generator=torch.Generator().manual_seed(0)).double()
    attention = reference.model.layers[0].self_attn
    cos, sin = reference.model.rotary_emb(x[None], torch.arange(20)[None])
    query = attention.q_proj(x).view(1, 20, -1, config.head_dim).transpose(1, 2)
    key = attention.k_proj(x).view(1, 20, -1, config.head_dim).transpose(1, 2)
    query, key = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    key = modeling_llama.repeat_kv(key, config.num_attention_heads // config.num_key_value_heads)
    torch.testing.assert_close(
        interleaved_scores(file, config, x), (query @ key.transpose(2, 3))[0].detach(), rtol=1e-4, atol=1e-4
    )


def test_what_llama_cpp_looks_for_is_there(cache: Path) -> None:
    reader = GGUFReader(written("tiny-llama3", cache))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    expected = {
        "general.architecture": "llama",
        "general.file_type": 0,
        "llama.context_length": 128,
        "llama.embedding_length": 64,
        "llama.block_count": 2,
        "llama.feed_forward_length": 176,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.rope.dimension_count": 16,
        "llama.rope.freq_base": 500_000.0,
        "llama.vocab_size": 512,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    assert {key: fields.get(key) for key in expected} == expected
    assert fields["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    names = {tensor.name for tensor in reader.tensors}
    assert len(names) == 3 + 1 + 2 * 9
    assert {"token_embd.weight", "output.weight", "output_norm.weight", "rope_freqs.weight"} < names
    assert "output.weight" not in {tensor.name for tensor in GGUFReader(written("tiny-tied", cache)).tensors}


@pytest.mark.parametrize("form", ["F16", "Q8_0"])
def test_matrices_have_the_format_that_was_asked_for(form: gguf_files.Format, cache: Path) -> None:
    kinds = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(written("tiny", cache, form)).tensors}
    assert {kind for name, kind in kinds.items() if "norm" in name} == {"F32"}
    assert {kind for name, kind in kinds.items() if "norm" not in name and "ffn_down" not in name} == {form}
    assert kinds["blk.0.ffn_down.weight"] == "F16"  # rows of 176 values are no multiple of 32


def test_plain_matrices_are_views_of_the_file(cache: Path) -> None:
    model = gguf_files.opened(written("tiny", cache))
    entry, tensor = model.entries["lm_head.weight"], model.tensor("lm_head.weight")
    assert tensor.data_ptr() == entry.data.ctypes.data
    checkpoint = load(written("tiny", cache), cache=cache)
    before = written("tiny", cache).read_bytes()
    checkpoint.weights["lm_head.weight"].zero_()  # private pages
    assert written("tiny", cache).read_bytes() == before


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_precision_folders_keep_every_bit(stored: torch.dtype, cache: Path, tmp_path: Path) -> None:
    folder = synthesize(GEOMETRIES["tiny-gqa"], dtype=stored, cache=cache)
    original = load(folder, dtype=torch.float32, cache=cache)
    read = load(write_gguf(folder, tmp_path / "a.gguf", cache=cache), cache=cache)
    assert all(torch.equal(read.weights[name], weight) for name, weight in original.weights.items())


def test_checkpoint_says_what_was_loaded(cache: Path) -> None:
    file, folder = written("tiny-tied", cache, "Q8_0"), synthesize(GEOMETRIES["tiny-tied"], cache=cache)
    read, original = load(file, dtype=torch.bfloat16, cache=cache), load(folder, cache=cache)
    assert (read.name, read.parameters, read.synthetic) == ("tiny-tied", original.parameters, False)
    assert list(read.weights) == list(original.weights)
    assert read.weights["lm_head.weight"] is read.weights["model.embed_tokens.weight"]
    assert {tensor.dtype for tensor in read.weights.values()} == {torch.bfloat16}
    assert check(file, cache=cache) == read.config == original.config
    assert read.digest != load(written("tiny-tied", cache), cache=cache).digest


# Files of others: quantizations that are not written here, and Llama-3 scaling without the original context.


def changed_file(
    source: Path,
    target: Path,
    *,
    fields: dict[str, Any] | None = None,
    tensors: Mapping[str, tuple[np.ndarray, GGMLQuantizationType] | None] | None = None,
    extra: Sequence[tuple[str, np.ndarray]] = (),
) -> Path:
    """A copy of a GGUF file with other values of some keys (None removes) and other tensors."""
    reader, fields, tensors = GGUFReader(source), fields or {}, tensors or {}
    arch = fields.get("general.architecture", "llama")
    writer = GGUFWriter(target, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in fields or name == "general.architecture":
            continue
        sub = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)
    for name, new in fields.items():
        kinds = {
            bool: GGUFValueType.BOOL,
            int: GGUFValueType.UINT32,
            str: GGUFValueType.STRING,
            list: GGUFValueType.ARRAY,
        }
        if new is not None and name != "general.architecture":
            writer.add_key_value(name, new, kinds[type(new)])
    for tensor in reader.tensors:
        changed = tensors.get(tensor.name, (tensor.data, tensor.tensor_type))
        if changed is not None:
            writer.add_tensor(tensor.name, changed[0], raw_dtype=changed[1])
    for name, data in extra:
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize("kind", ["BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_other_quantizations_are_read(kind: str, cache: Path, tmp_path: Path) -> None:
    original = load(synthesize(GEOMETRIES["tiny-gqa"], cache=cache), cache=cache).weights["lm_head.weight"]
    data = quantize(original.numpy(), GGMLQuantizationType[kind])
    tensors = {"output.weight": (data, GGMLQuantizationType[kind])}
    file = changed_file(written("tiny-gqa", cache), tmp_path / "a.gguf", tensors=tensors)
    weight = load(file, cache=tmp_path).weights["lm_head.weight"]
    bits = {"BF16": 8, "Q4_0": 3, "Q4_1": 4, "Q5_0": 4, "Q5_1": 5}[kind]  # of the largest value, sign aside
    off = (weight - original).abs().max() / original.abs().max()
    assert 0 < off <= 2.0**-bits


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quantizations_are_read_as_the_library_does(kind: str, cache: Path, tmp_path: Path) -> None:
    geometry = geometries.Geometry(
        "wide", replace(GEOMETRIES["tiny"].config, hidden_size=256, head_dim=16, num_hidden_layers=1), "", ""
    )
    source = write_gguf(synthesize(geometry, cache=cache), cache / f"wide-{kind}.gguf", cache=cache)
    block = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}[kind]
    data = np.random.default_rng(0).integers(0, 60, (512, block), dtype=np.uint8)  # scales stay finite
    file = changed_file(source, tmp_path / "a.gguf", tensors={"output.weight": (data, GGMLQuantizationType[kind])})
    weight = load(file, cache=tmp_path).weights["lm_head.weight"]
    assert weight.shape == (512, 256)
    assert torch.equal(weight, torch.from_numpy(dequantize(data, GGMLQuantizationType[kind])))


@pytest.mark.parametrize("theta, head_dim", [(10_000.0, 16), (500_000.0, 64), (500_000.0, 128)])
@pytest.mark.parametrize(
    "scaling",
    [
        RopeScaling(8.0, 1.0, 4.0, 8192),
        RopeScaling(32.0, 1.0, 4.0, 8192),
        RopeScaling(3.0, 2.0, 5.0, 1000),
        RopeScaling(8.0, 1.0, 1.2, 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_told", [True, False])
def test_llama3_scaling_is_told_from_its_factors(
    theta: float, head_dim: int, scaling: RopeScaling, is_told: bool, tmp_path: Path, cache: Path
) -> None:
    config = replace(GEOMETRIES["tiny"].config, rope_theta=theta, head_dim=head_dim, rope_scaling=scaling)
    geometry = geometries.Geometry("scaled", config, "", "")
    file = write_gguf(synthesize(geometry, cache=tmp_path), tmp_path / "a.gguf", cache=tmp_path)
    if not is_told:
        file = changed_file(file, tmp_path / "b.gguf", fields={"llama.rope.scaling.original_context_length": None})
    found = check(file, cache=tmp_path)
    if scaling.low_freq_factor == 1 and scaling.high_freq_factor == 4:
        assert found.rope_scaling == scaling
    from llama_workbench.variants.modular.rope import inverse_frequencies

    torch.testing.assert_close(inverse_frequencies(found), inverse_frequencies(config), rtol=2e-5, atol=0)


# --- the tokenizer ---


def test_prompts_from_a_gguf_file_are_those_of_the_folder(cache: Path) -> None:
    folder = synthesize(GEOMETRIES["tiny"], cache=cache)
    ours, theirs = (text_ids(each, vocab_size=512, cache=cache).tolist() for each in (written("tiny", cache), folder))
    assert ours == theirs


def llama3_like(cache: Path) -> Tokenizer:
    """A tokenizer with all that Llama 3's has: its splitting, skipped merges, special tokens behind, BOS in front."""
    described = json.loads(tokenizer.train(400, cache=cache))
    described["added_tokens"] = []
    vocab = described["model"]["vocab"]
    made = Tokenizer(models.BPE(vocab, [tuple(pair) for pair in described["model"]["merges"]], ignore_merges=True))
    expression = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    made.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 400)]
    )
    return made


def test_llama3s_tokenizer_goes_through_metadata(cache: Path) -> None:
    original = llama3_like(cache)
    fields = gguf_tokenizer.tokenizer_fields(original.to_str(), vocab_size=450, bos=400, eos=401)
    assert (fields.split, fields.add_bos, fields.add_eos) == ("llama-bpe", True, False)
    assert fields.tokens[400:404] == ("<|begin_of_text|>", "<|end_of_text|>", "<tool>", "[PAD403]")
    assert fields.types[399:404] == (
        TokenType.NORMAL,
        TokenType.CONTROL,
        TokenType.CONTROL,
        TokenType.USER_DEFINED,
        TokenType.UNUSED,
    )
    again = gguf_tokenizer.rebuilt(fields)
    texts = [*tokenizer.text()[:20], *(text for texts in gguf_checks.EDGE_CASES.values() for text in texts)]
    for text in [*texts, "x<tool>y <|end_of_text|>"]:
        assert again.encode(text).ids == original.encode(text).ids
    assert again.encode("a").ids[0] == 400


def sentencepiece_file(cache: Path, target: Path, **fields: Any) -> tuple[Path, Tokenizer]:
    """A GGUF file with Llama 2's kind of tokenizer, its metadata changed, and the tokenizer.json behind it."""
    original = Tokenizer.from_str(gguf_checks.sentencepiece_like(500))
    source = target.with_name("source.gguf")
    config, weights = GEOMETRIES["tiny"].config, load(synthesize(GEOMETRIES["tiny"], cache=cache), cache=cache).weights
    gguf_files.write(source, config, weights, original.to_str(), bos=1, eos=2)
    return changed_file(
        source, target, fields={f"tokenizer.ggml.{key}": part for key, part in fields.items()}
    ), original


def test_llama2s_tokenizer_is_written_with_scores_and_merges(cache: Path) -> None:
    fields = gguf_tokenizer.tokenizer_fields(gguf_checks.sentencepiece_like(500), vocab_size=512, bos=1, eos=2)
    assert (fields.model, fields.split, fields.unknown, fields.space_prefix) == ("llama", "default", 0, True)
    assert (fields.add_bos, fields.add_eos) == (True, False)
    assert fields.types[:4] == (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, TokenType.BYTE)
    assert fields.tokens[259:261] == ("\u2581" * 2, "\u2581" * 4) and fields.types[259] == TokenType.NORMAL
    assert fields.scores[258] == 0 and fields.scores[260] < fields.scores[259] <= 0
    joined = {merge.replace(" ", "") for merge in fields.merges}
    best = sorted(joined, key=lambda word: -fields.scores[fields.tokens.index(word)])
    assert best == list(dict.fromkeys(merge.replace(" ", "") for merge in fields.merges))


@pytest.mark.parametrize("left_out", ["scores", "merges"])
def test_sentencepiece_is_read_by_its_merges_or_by_its_scores(left_out: str, cache: Path, tmp_path: Path) -> None:
    file, original = sentencepiece_file(cache, tmp_path / "my.gguf", **{left_out: None})
    again = Tokenizer.from_str(gguf_tokenizer.tokenizer_json(file))
    for text in [*tokenizer.text()[:20], *(text for texts in gguf_checks.EDGE_CASES.values() for text in texts)]:
        assert again.encode(text).ids == original.encode(text).ids
    assert again.encode("a").ids[0] == 1
    assert len(text_ids(file, vocab_size=512, cache=tmp_path))


def test_merges_go_before_scores_that_say_nothing(cache: Path, tmp_path: Path) -> None:
    file, original = sentencepiece_file(cache, tmp_path / "my.gguf", scores=[0.0] * 512)
    again = Tokenizer.from_str(gguf_tokenizer.tokenizer_json(file))
    assert [again.encode(text).ids for text in tokenizer.text()] == [original.encode(t).ids for t in tokenizer.text()]


def test_a_file_without_the_key_gets_a_space_as_llama_cpp_gives_it(cache: Path, tmp_path: Path) -> None:
    file, original = sentencepiece_file(cache, tmp_path / "my.gguf", add_space_prefix=None)
    assert Tokenizer.from_str(gguf_tokenizer.tokenizer_json(file)).encode("a").ids == original.encode("a").ids
    file, _ = sentencepiece_file(cache, tmp_path / "other.gguf", add_space_prefix=False)
    again = Tokenizer.from_str(gguf_tokenizer.tokenizer_json(file))
    assert again.encode("a").tokens == ["<s>", "a"]
    assert again.decode(again.encode(" a b").ids) == " a b"


BAD_SCORES: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"scores": None}, r"tokenizer\.ggml\.scores is missing"),
    "too few": ({"scores": [0.0, -1.0]}, r"scores has 2 entries, expected 512"),
    "all alike": ({"scores": [-1000.0] * 512}, r"scores is -1000 for .* and -1000 for .*, expected another"),
    "no numbers": ({"scores": [math.nan] * 512}, r"scores is nan for .*, expected another"),
}


@pytest.mark.parametrize("case", BAD_SCORES)
def test_scores_that_order_nothing_are_named(case: str, cache: Path, tmp_path: Path) -> None:
    fields, expected = BAD_SCORES[case]
    file, _ = sentencepiece_file(cache, tmp_path / "my.gguf", merges=None, **fields)
    with pytest.raises(CheckpointError, match=f"my.gguf: .*{expected}"):
        gguf_tokenizer.tokenizer_json(file)


def spoiled(cache: Path, change: Callable[[Tokenizer], object], *, of: str = "") -> str:
    made = Tokenizer.from_str(of or tokenizer.train(300, cache=cache))
    change(made)
    return made.to_str()


UNSAYABLE: dict[str, tuple[Callable[[Tokenizer], object], str]] = {
    "normalizer": (lambda made: setattr(made, "normalizer", normalizers.NFC()), r"normalizer = .*NFC.*cannot say"),
    "digits apart": (lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.Digits()), "pre_tokenizer = .*Digits"),
    "leading space": (
        lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
        r"pre_tokenizer = .*\"add_prefix_space\": true",
    ),
    "dropout": (lambda made: setattr(made.model, "dropout", 0.1), r"model\.dropout = 0\.1"),
    "skipped merges": (lambda made: setattr(made.model, "ignore_merges", True), r"model\.ignore_merges = True"),
    "greedy spaces": (
        lambda made: made.add_tokens([AddedToken("<x>", lstrip=True)]),
        r"added_tokens = .*'lstrip': True",
    ),
    "template": (
        lambda made: setattr(
            made, "post_processor", processors.TemplateProcessing(single="$A <s> <s>", special_tokens=[("<s>", 0)])
        ),
        r"post_processor makes .* expected at most BOS None and EOS None",
    ),
    "no BPE": (lambda made: setattr(made, "model", models.WordLevel({"a": 0}, "a")), "'WordLevel', expected 'BPE'"),
    "too many words": (lambda made: made.add_tokens(["<x>"]), r"has the id 300, expected ids below .* = 300"),
}


@pytest.mark.parametrize("case", UNSAYABLE)
def test_a_tokenizer_that_gguf_cannot_say_is_not_written(case: str, cache: Path) -> None:
    change, expected = UNSAYABLE[case]
    rows = 300 if case == "too many words" else 310
    with pytest.raises(CheckpointError, match=expected):
        gguf_tokenizer.tokenizer_fields(spoiled(cache, change), vocab_size=rows)


UNSAYABLE_SENTENCEPIECE: dict[str, tuple[Callable[[Tokenizer], object], str]] = {
    "spaces before the first word alone": (
        lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
        "pre_tokenizer = .*Metaspace",
    ),
    "NFC": (
        lambda made: setattr(made, "normalizer", normalizers.Sequence([normalizers.NFC(), made.normalizer])),
        "normalizer = .*NFC",
    ),
    "dropout": (lambda made: setattr(made.model, "dropout", 0.1), r"model\.dropout = 0\.1"),
}


@pytest.mark.parametrize("case", UNSAYABLE_SENTENCEPIECE)
def test_another_kind_of_sentencepiece_is_not_written(case: str, cache: Path) -> None:
    change, expected = UNSAYABLE_SENTENCEPIECE[case]
    with pytest.raises(CheckpointError, match=expected):
        gguf_tokenizer.tokenizer_fields(spoiled(cache, change, of=gguf_checks.sentencepiece_like(500)), vocab_size=512)


def test_a_byte_without_a_word_is_named() -> None:
    content = gguf_checks.sentencepiece_like(500).replace("<0x41>", "<other>")
    with pytest.raises(CheckpointError, match="without a word for the byte <0x41>"):
        gguf_tokenizer.tokenizer_fields(content, vocab_size=512)


BAD_TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "other model": ({"tokenizer.ggml.model": "bert"}, r"model = 'bert', expected 'gpt2'.*'llama'.*Hugging Face folder"),
    "other splitting": ({"tokenizer.ggml.pre": "qwen2"}, r"pre = 'qwen2', expected one of gpt-2, llama-bpe"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens is missing"),
    "too few types": ({"tokenizer.ggml.token_type": [1, 1]}, r"token_type has 2 entries, expected 512"),
    "twice": ({"tokenizer.ggml.tokens": ["a"] * 512}, r"tokens has 'a' twice"),
    "foreign merge": ({"tokenizer.ggml.merges": ["a \u4e00"]}, r"merges has 'a \u4e00', expected two tokens"),
    "BOS beyond": ({"tokenizer.ggml.bos_token_id": 512}, r"bos_token_id = 512, expected an id below 512"),
}


@pytest.mark.parametrize("case", BAD_TOKENIZERS)
def test_bad_tokenizers_are_named(case: str, cache: Path, tmp_path: Path) -> None:
    fields, expected = BAD_TOKENIZERS[case]
    file = changed_file(written("tiny", cache), tmp_path / "my.gguf", fields=fields)
    with pytest.raises(TokenizerError, match=expected) as caught:
        text_ids(file, vocab_size=512, cache=tmp_path)
    assert "my.gguf" in str(caught.value)


@pytest.mark.parametrize("kind", ["no_vocab", None])
def test_a_file_without_a_tokenizer_has_prompts_drawn_at_random(kind: str | None, cache: Path, tmp_path: Path) -> None:
    file = changed_file(written("tiny", cache), tmp_path / "my.gguf", fields={"tokenizer.ggml.model": kind})
    assert described(file, cache=tmp_path)[1].endswith("no tokenizer: prompts are token ids drawn at random")
    assert set(text_ids(file, vocab_size=512, cache=tmp_path).tolist()) == set(range(512))


def test_biases_that_are_all_zero_are_left_out(cache: Path, tmp_path: Path) -> None:
    zeros = [(f"blk.{layer}.attn_{name}.bias", np.zeros(64, np.float32)) for layer in (0, 1) for name in "qkv"]
    file = changed_file(written("tiny", cache), tmp_path / "my.gguf", extra=zeros)
    assert "biases all zero and left out" in described(file, cache=tmp_path)[1]
    ours, theirs = (load(each, cache=tmp_path).weights for each in (file, written("tiny", cache)))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


# --- bad files ---


Spoil = Callable[[Path, Path], object]
NORM = "blk.0.attn_norm.weight"


def with_fields(**changes: Any) -> Spoil:
    return lambda source, target: changed_file(
        source, target, fields={key.replace("__", "."): new for key, new in changes.items()}
    )


def with_tensor(name: str, data: np.ndarray | None, kind: str = "F32") -> Spoil:
    changed = None if data is None else (data, GGMLQuantizationType[kind])
    return lambda source, target: changed_file(source, target, tensors={name: changed})


def with_extra(name: str) -> Spoil:
    return lambda source, target: changed_file(source, target, extra=[(name, np.ones(64, np.float32))])


def with_bytes(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda source, target: target.write_bytes(change(source.read_bytes()))


def other_byte_order(source: Path, target: Path) -> None:
    writer = GGUFWriter(target, "llama", endianess=GGUFEndian.BIG)
    writer.add_token_list(["a", "b"])
    writer.add_tensor("token_embd.weight", np.ones((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def with_length(key: bytes, length: int) -> Spoil:
    """A list that says that it has that many entries."""

    def change(content: bytes) -> bytes:
        at = content.index(key) + len(key) + 8
        return content[:at] + struct.pack("<Q", length) + content[at + 8 :]

    return with_bytes(change)


with_nan = np.ones(64, np.float32)
with_nan[5] = np.nan
BAD: dict[str, tuple[Spoil, str]] = {
    "empty": (with_bytes(lambda content: b""), r"not a GGUF file \(starts with b''"),
    "no GGUF": (with_bytes(lambda content: b"PK\3\4" + content), r"not a GGUF file \(starts with b'PK"),
    "LFS pointer": (with_bytes(lambda content: b"version https://git-lfs"), r"Git LFS pointer.*git lfs pull"),
    "only the magic": (with_bytes(lambda content: content[:4]), r"truncated or damaged: 4 bytes, expected at least 8"),
    "cut metadata": (with_bytes(lambda content: content[:5000]), r"truncated or damaged: 5000 bytes"),
    "cut weights": (
        with_bytes(lambda content: content[:-100]),
        r"truncated or damaged: \d+ bytes, expected at least \d+",
    ),
    "endless list": (
        with_length(b"tokenizer.ggml.token_type", 2**60),
        r"truncated or damaged: \d+ bytes, expected at least \d{19}",
    ),
    "endless words": (with_length(b"tokenizer.ggml.tokens", 2**60), r"truncated or damaged: \d+ bytes"),
    "byte order": (other_byte_order, r"written for the other byte order.*gguf_convert_endian"),
    "version": (with_bytes(lambda content: content[:4] + b"\x09" + content[5:]), r"damaged \(.*version 9"),
    "other architecture": (
        with_fields(general__architecture="qwen2"),
        r"general\.architecture = 'qwen2', expected 'llama'",
    ),
    "experts": (with_fields(llama__expert_count=8), r"llama\.expert_count = 8, expected 0"),
    "YaRN": (with_fields(llama__rope__scaling__type="yarn"), r"rope\.scaling\.type = 'yarn', expected 'none'"),
    "half RoPE": (with_fields(llama__rope__dimension_count=8), r"dimension_count = 8, expected 16"),
    "no epsilon": (
        with_fields(llama__attention__layer_norm_rms_epsilon=None),
        r"llama\.attention\.layer_norm_rms_epsilon is missing",
    ),
    "zero heads": (with_fields(llama__attention__head_count=0), r"head_count = 0, expected greater than 0"),
    "odd groups": (with_fields(llama__attention__head_count_kv=3), r"head_count_kv = 3, expected a divisor of .* = 4"),
    "heads by layer": (with_fields(llama__attention__head_count_kv=[4, 2]), r"head_count_kv = \[4, 2\], expected the"),
    "a part": (with_fields(split__count=3), r"one of 3 parts.*llama-gguf-split --merge"),
    "missing tensor": (with_tensor(NORM, None), rf"missing tensor {NORM} of shape \[64\]"),
    "missing embedding": (with_tensor("token_embd.weight", None), r"missing tensor token_embd\.weight"),
    "shape": (with_tensor(NORM, np.ones(32, np.float32)), rf"{NORM}: shape \[32\], expected \[64\]"),
    "bias": (with_extra("blk.1.attn_q.bias"), r"blk\.1\.attn_q\.bias: a bias that is not zero, and no variant adds"),
    "too many layers": (with_extra("blk.2.attn_norm.weight"), r"blk\.2\.attn_norm\.weight: unexpected tensor for 2"),
    "quantization": (
        with_tensor("output.weight", np.zeros((512, 36), np.uint8), "IQ4_NL"),
        r"output\.weight: quantization IQ4_NL, expected one of F64, F32, BF16, F16, Q8_0, Q6_K",
    ),
    "integers": (with_tensor(NORM, np.ones(64, np.int8), "I8"), r"quantization I8, expected one of"),
    "NaN": (with_tensor(NORM, with_nan), r"input_layernorm\.weight: 1 of 64 values are NaN or infinite, .* \[5\]"),
    "RoPE factors": (
        with_extra("rope_freqs.weight"),
        r"rope_freqs\.weight: F32 of shape \[64\], expected F32 of shape \[8",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(case: str, cache: Path, tmp_path: Path) -> None:
    spoil, expected = BAD[case]
    spoil(written("tiny", cache), tmp_path / "my-llama.gguf")
    with pytest.raises(CheckpointError, match=expected) as caught:
        check(tmp_path / "my-llama.gguf", cache=tmp_path)
    assert "my-llama.gguf: " in str(caught.value)
    assert "; " in str(caught.value)  # what to do about it


def test_factors_of_another_scaling_are_named(cache: Path, tmp_path: Path) -> None:
    extra = [("rope_freqs.weight", np.array([1, 2, 1, 4, 1, 8, 1, 8], np.float32))]
    file = changed_file(written("tiny", cache), tmp_path / "my-llama.gguf", extra=extra)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight: not Llama-3 scaling"):
        check(file, cache=tmp_path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere\.gguf: cannot be read \(No such file"):
        load(tmp_path / "nowhere.gguf", cache=tmp_path)


def test_values_beyond_f16_are_not_written(cache: Path, tmp_path: Path) -> None:
    folder = synthesize(GEOMETRIES["tiny"], cache=cache)
    weights = load(folder, cache=cache).weights | {"lm_head.weight": torch.full((512, 64), 1e5)}
    with pytest.raises(CheckpointError, match="beyond the range of F16"):
        gguf_files.write(
            tmp_path / "a.gguf", GEOMETRIES["tiny"].config, weights, tokenizer.train(512, cache=cache), format="F16"
        )
    assert list(tmp_path.iterdir()) == []
