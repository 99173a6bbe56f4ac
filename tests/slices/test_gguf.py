"""GGUF files: what is read is what was written, prompts are cut with the file's tokenizer, and bad files are named."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, TokenType, dequantize, quantize
from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import Metaspace

from llama_workbench.datasets import geometries, tokenizer
from llama_workbench.datasets.checkpoints import CheckpointError, described, load, synthesize
from llama_workbench.datasets.tokenizer import TokenizerError, text_ids
from llama_workbench.harness.slices.gguf import cases as gguf_checks
from llama_workbench.harness.slices.gguf import checkpoint as gguf
from llama_workbench.variants.config import LlamaConfig, RopeScaling
from tests.datasets.test_foreign_files import TINY, _no_hang, no_file, refused  # noqa: F401

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


def written(name: str, cache: Path) -> Path:
    """The GGUF file of a geometry, made once."""
    file = cache / f"{name}.gguf"
    if not file.exists():
        gguf_checks.write(synthesize(GEOMETRIES[name], cache=cache), file, cache=cache)
    return file


# --- the two checks ---


def test_model_and_tokenizer_are_the_same_from_gguf(cache: Path) -> None:
    cases = [*gguf_checks.check_gguf_loads(cache, seed=0), *gguf_checks.check_tokenizer_matches(cache, seed=0)]
    assert len({name for name, _, _ in cases}) == len(cases) == 2 * len(GEOMETRIES) + 2
    assert [case for case in cases if not case[1]] == []


def test_a_wrong_order_of_rows_fails_the_check(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_checks, "gguf_geometries", lambda: [GEOMETRIES["tiny-gqa"]])
    monkeypatch.setattr(gguf, "_values", lambda path, tensor, head_dim: torch.from_numpy(tensor.data))
    numbers, weights = gguf_checks.check_gguf_loads(cache, seed=0)
    assert numbers[1] and not weights[1]
    assert weights[2].startswith("model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight")


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
        "general.architecture": "llama", "llama.context_length": 128, "llama.embedding_length": 64,
        "llama.block_count": 2, "llama.feed_forward_length": 176, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 16, "llama.rope.freq_base": 500_000.0,
        "llama.vocab_size": 512, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
    }  # fmt: skip
    assert {key: fields.get(key) for key in expected} == expected
    assert fields["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    names = {tensor.name for tensor in reader.tensors}
    assert len(names) == 3 + 1 + 2 * 9
    assert {"token_embd.weight", "output.weight", "output_norm.weight", "rope_freqs.weight"} < names
    assert "output.weight" not in {tensor.name for tensor in GGUFReader(written("tiny-tied", cache)).tensors}


def test_plain_matrices_are_views_of_the_file(cache: Path) -> None:
    stored = gguf.opened(written("tiny", cache)).tensors["lm_head.weight"]
    assert stored.read().data_ptr() == stored.read().data_ptr()
    checkpoint = load(written("tiny", cache), cache=cache)
    before = written("tiny", cache).read_bytes()
    checkpoint.weights["lm_head.weight"].zero_()  # private pages
    assert written("tiny", cache).read_bytes() == before


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_precision_folders_keep_every_bit(stored: torch.dtype, cache: Path, tmp_path: Path) -> None:
    folder = synthesize(GEOMETRIES["tiny-gqa"], dtype=stored, cache=cache)
    original = load(folder, dtype=torch.float32, cache=cache)
    read = load(gguf_checks.write(folder, tmp_path / "a.gguf", cache=cache), cache=cache)
    assert all(torch.equal(read.weights[name], weight) for name, weight in original.weights.items())


def test_checkpoint_says_what_was_loaded(cache: Path) -> None:
    file, folder = written("tiny-tied", cache), synthesize(GEOMETRIES["tiny-tied"], cache=cache)
    read, original = load(file, dtype=torch.bfloat16, cache=cache), load(folder, cache=cache)
    assert (read.name, read.parameters, read.synthetic) == ("tiny-tied", original.parameters, False)
    assert list(read.weights) == list(original.weights)
    assert read.weights["lm_head.weight"] is read.weights["model.embed_tokens.weight"]
    assert {tensor.dtype for tensor in read.weights.values()} == {torch.bfloat16}
    assert load(file, cache=cache).config == read.config == original.config
    assert read.digest != load(written("tiny", cache), cache=cache).digest


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


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_other_quantizations_are_read(kind: str, cache: Path, tmp_path: Path) -> None:
    original = load(synthesize(GEOMETRIES["tiny-gqa"], cache=cache), cache=cache).weights["lm_head.weight"]
    data = quantize(original.numpy(), GGMLQuantizationType[kind])
    tensors = {"output.weight": (data, GGMLQuantizationType[kind])}
    file = changed_file(written("tiny-gqa", cache), tmp_path / "a.gguf", tensors=tensors)
    weight = load(file, cache=tmp_path).weights["lm_head.weight"]
    bits = {"F16": 11, "BF16": 8, "Q8_0": 7, "Q4_0": 3, "Q4_1": 4, "Q5_0": 4, "Q5_1": 5}[
        kind
    ]  # of the largest value, sign aside
    off = (weight - original).abs().max() / original.abs().max()
    assert 0 < off <= 2.0**-bits


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quantizations_are_read_as_the_library_does(kind: str, cache: Path, tmp_path: Path) -> None:
    geometry = geometries.Geometry(
        "wide", replace(GEOMETRIES["tiny"].config, hidden_size=256, head_dim=16, num_hidden_layers=1), "", ""
    )
    source = gguf_checks.write(synthesize(geometry, cache=cache), cache / f"wide-{kind}.gguf", cache=cache)
    block = {"Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}[kind]
    data = np.random.default_rng(0).integers(0, 60, (512, block), dtype=np.uint8)  # scales stay finite
    file = changed_file(source, tmp_path / "a.gguf", tensors={"output.weight": (data, GGMLQuantizationType[kind])})
    weight = load(file, cache=tmp_path).weights["lm_head.weight"]
    assert weight.shape == (512, 256)
    assert torch.equal(weight, torch.from_numpy(dequantize(data, GGMLQuantizationType[kind])))


@pytest.mark.parametrize("theta, head_dim", [(10_000.0, 16), (500_000.0, 64), (500_000.0, 128)])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_told_from_its_factors(theta: float, head_dim: int, factor: float, tmp_path: Path) -> None:
    scaling = RopeScaling(factor, 1.0, 4.0, 8192)
    config = replace(GEOMETRIES["tiny"].config, rope_theta=theta, head_dim=head_dim, rope_scaling=scaling)
    folder = synthesize(geometries.Geometry("scaled", config, "", ""), cache=tmp_path)
    file = gguf_checks.write(folder, tmp_path / "a.gguf", cache=tmp_path)
    untold = changed_file(file, tmp_path / "b.gguf", fields={"llama.rope.scaling.original_context_length": None})
    assert load(file, cache=tmp_path).config.rope_scaling == load(untold, cache=tmp_path).config.rope_scaling == scaling


# --- the tokenizer ---


def test_sentencepiece_is_read_too(cache: Path, tmp_path: Path) -> None:
    """Llama 2's kind: no splitting, a mark for each space."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = Metaspace()
    trained.train_from_iterator(tokenizer.text(), trainers.BpeTrainer(vocab_size=509, show_progress=False))
    vocab = trained.get_vocab()
    words = ["<unk>", "<s>", "</s>", *sorted(vocab, key=vocab.__getitem__)]
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [int(TokenType.UNKNOWN), *[int(TokenType.CONTROL)] * 2, *[1] * (len(words) - 3)],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.scores": [float(-rank) for rank in range(len(words))],
    }
    file = changed_file(written("tiny", cache), tmp_path / "my.gguf", fields=fields)
    ids = text_ids(file, vocab_size=512, cache=tmp_path)
    assert len(ids) < sum(map(len, tokenizer.text())) and len(set(ids.tolist())) > 200
    (tmp_path / "tokenised").rename(tmp_path / "gone")
    assert (text_ids(file, vocab_size=512, cache=tmp_path) == ids).all()


BAD_TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "other model": ({"tokenizer.ggml.model": "bert"}, r"no tokenizer comes of it \(.*'bert'.*\); take the file"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, r"no tokenizer comes of it"),
    "foreign merge": ({"tokenizer.ggml.merges": ["a \u4e00"]}, r"no tokenizer comes of it"),
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


def with_length(key: bytes, length: int) -> Spoil:
    """A list that says that it has that many entries."""

    def change(content: bytes) -> bytes:
        at = content.index(key) + len(key) + 8
        return content[:at] + struct.pack("<Q", length) + content[at + 8 :]

    return with_bytes(change)


with_nan = np.ones(64, np.float32)
with_nan[5] = np.nan
DAMAGED = r"truncated, damaged or not GGUF \("
BAD: dict[str, tuple[Spoil, str]] = {
    "empty": (with_bytes(lambda content: b""), DAMAGED),
    "no GGUF": (with_bytes(lambda content: b"PK\3\4" + content), rf"{DAMAGED}GGUF magic invalid\)"),
    "LFS pointer": (with_bytes(lambda content: b"version https://git-lfs"), r"Git LFS pointer.*git lfs pull"),
    "only the magic": (with_bytes(lambda content: content[:4]), rf"{DAMAGED}4 bytes, expected at least 8"),
    "cut metadata": (with_bytes(lambda content: content[:5000]), rf"{DAMAGED}5000 bytes"),
    "cut weights": (with_bytes(lambda content: content[:-100]), rf"{DAMAGED}\d+ bytes, expected at least \d+"),
    "endless list": (
        with_length(b"tokenizer.ggml.token_type", 2**60),
        rf"{DAMAGED}\d+ bytes, expected at least \d{{19}}",
    ),
    "endless words": (with_length(b"tokenizer.ggml.tokens", 2**60), rf"{DAMAGED}\d+ bytes"),
    "version": (with_bytes(lambda content: content[:4] + b"\x09" + content[5:]), rf"{DAMAGED}.*version 9"),
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
    "heads by layer": (
        with_fields(llama__attention__head_count_kv=[4, 2]),
        r"head_count_kv = 'a list', expected a valid",
    ),
    "a part": (with_fields(split__count=3), r"one of 3 parts.*llama-gguf-split --merge"),
    "missing tensor": (with_tensor(NORM, None), r"missing tensor model\.layers\.0\.input_layernorm\.weight of shape"),
    "missing embedding": (with_tensor("token_embd.weight", None), r"missing tensor token_embd\.weight"),
    "shape": (with_tensor(NORM, np.ones(32, np.float32)), r"input_layernorm\.weight: shape \[32\], expected \[64\]"),
    "bias": (with_extra("blk.1.attn_q.bias"), r"blk\.1\.attn_q\.bias: a bias that is not zero, and no variant adds"),
    "too many layers": (with_extra("blk.2.attn_norm.weight"), r"blk\.2\.attn_norm\.weight: unexpected tensor for 2"),
    "integers": (with_tensor(NORM, np.ones(64, np.int8), "I8"), r"quantization I8, which the library gguf cannot read"),
    "NaN": (with_tensor(NORM, with_nan), r"input_layernorm\.weight: 1 of 64 values are NaN or infinite, .* \[5\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(case: str, cache: Path, tmp_path: Path) -> None:
    spoil, expected = BAD[case]
    spoil(written("tiny", cache), tmp_path / "my-llama.gguf")
    with pytest.raises(CheckpointError, match=expected) as caught:
        load(tmp_path / "my-llama.gguf", cache=tmp_path)
    assert "my-llama.gguf: " in str(caught.value)
    assert "; " in str(caught.value)  # what to do about it


def test_factors_of_another_scaling_and_a_missing_file_are_named(cache: Path, tmp_path: Path) -> None:
    extra = [("rope_freqs.weight", np.array([1, 2, 1, 4, 1, 8, 1, 8], np.float32))]
    file = changed_file(written("tiny", cache), tmp_path / "my-llama.gguf", extra=extra)
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight: not Llama-3 scaling"):
        load(file, cache=tmp_path)
    with pytest.raises(CheckpointError, match=r"nowhere\.gguf: cannot be read \(No such file"):
        load(tmp_path / "nowhere.gguf", cache=tmp_path)


# --- what no loader wrote ---


@pytest.fixture
def mine(cache: Path, tmp_path: Path) -> Path:
    whole = cache / "tiny.gguf"
    if not whole.exists():
        gguf_checks.write(synthesize(TINY, cache=cache), whole, cache=cache)
    return Path(shutil.copy(whole, tmp_path / "mine.gguf"))


@pytest.mark.parametrize("kind", ["named pipe", "device", "folder", "loop"])
def test_what_is_no_plain_file_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    refused(tmp_path / "mine.gguf", tmp_path, re.escape(f"mine.gguf: {no_file(kind, tmp_path / 'mine.gguf')}"))


def test_what_was_taken_from_a_gguf_file_is_said_in_the_same_line(mine: Path, cache: Path) -> None:
    assert described(mine, cache=cache)[1] == described(synthesize(TINY, cache=cache), cache=cache)[1]


@pytest.mark.parametrize("layers", [10**6, 2**32 - 1, 22])
def test_a_gguf_file_with_millions_of_layers(layers: int, mine: Path, cache: Path, tmp_path: Path) -> None:
    file = changed_file(mine, tmp_path / "changed.gguf", fields={"llama.block_count": layers})
    said = r"llama\.block_count = \d+, expected less than or equal to 1000"
    refused(file, cache, said if layers > 1000 else r"missing tensor model\.layers\.2\.")


def with_key(file: Path, key: str, value: bytes) -> None:
    """Put one more key in front of all others of a GGUF file; `value` begins with its kind."""
    content = file.read_bytes()
    keys = struct.unpack("<Q", content[16:24])[0]
    added = struct.pack("<Q", len(key)) + key.encode() + value
    added += bytes(-len(added) % 32) if value else b""
    file.write_bytes(content[:16] + struct.pack("<Q", keys + 1) + added + content[24:])


LIST = struct.pack("<I", 9)


@pytest.mark.parametrize(
    "value",
    [
        LIST + struct.pack("<IQ", 9, 10**6) + struct.pack("<IQ", 4, 0) * 10**6,  # a million lists without numbers
        LIST + struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0),  # in one another
        LIST + struct.pack("<IQ", 8, 10**12),  # more texts than there are bytes
    ],
    ids=["wide", "deep", "long"],
)
def test_a_gguf_file_with_a_list_that_cannot_be(value: bytes, mine: Path, cache: Path) -> None:
    with_key(mine, "a", value)
    refused(mine, cache, r"mine\.gguf: truncated, damaged or not GGUF \(")


@pytest.mark.parametrize("at", [8, 16], ids=["tensors", "keys"])
@pytest.mark.parametrize("count", [10**5, 2**63])
def test_a_gguf_file_with_counts_beyond_its_size(at: int, count: int, mine: Path, cache: Path) -> None:
    content = mine.read_bytes()
    mine.write_bytes(content[:at] + struct.pack("<Q", count) + content[at + 8 :])
    refused(mine, cache, r"mine\.gguf: truncated, damaged or not GGUF \(")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("llama.attention.layer_norm_rms_epsilon", 1e24, r"_epsilon = .*e\+2., expected less than 1"),
        ("llama.rope.freq_base", 1e24, r"freq_base = .*e\+2., expected less than or equal to 10{12}"),
        ("llama.context_length", 2**32 - 1, r"context_length = 4294967295, expected less than or equal to 2147483647"),
    ],
)  # fmt: skip
def test_a_number_out_of_all_bounds_in_a_gguf_file(key: str, value: Any, said: str, mine: Path, cache: Path) -> None:
    part = GGUFReader(mine).fields[key].parts[-1]
    content = mine.read_bytes()
    field = GGUFReader(mine).fields[key]
    start = field.offset + sum(each.nbytes for each in field.parts[:-1])
    new = struct.pack("<f" if isinstance(value, float) else "<I", value)
    mine.write_bytes(content[:start] + new + content[start + part.nbytes :])
    refused(mine, cache, said)


@pytest.mark.filterwarnings("error")
def test_a_gguf_tensor_that_lies_around_the_end(mine: Path, cache: Path) -> None:
    field = GGUFReader(mine).tensors[2].field
    start = field.offset + sum(part.nbytes for part in field.parts[:-1])
    content = mine.read_bytes()
    mine.write_bytes(content[:start] + struct.pack("<Q", 2**64 - 512) + content[start + 8 :])
    refused(mine, cache, r"truncated, damaged or not GGUF \(")


def test_words_of_a_gguf_tokenizer_that_are_numbers(mine: Path, cache: Path, tmp_path: Path) -> None:
    file = changed_file(mine, tmp_path / "changed.gguf", fields={"tokenizer.ggml.merges": [1, 2, 3]})
    with pytest.raises(TokenizerError, match=r"changed\.gguf: no tokenizer comes of it \("):
        text_ids(file, vocab_size=512, cache=cache)
