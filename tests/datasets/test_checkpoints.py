"""Synthetic checkpoints and real folders: what is loaded is what transformers loads, and what is wrong is named."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from llama_workbench import ROOT, variants
from llama_workbench.cache import CacheError
from llama_workbench.datasets import geometries
from llama_workbench.datasets.checkpoints import Checkpoint, CheckpointError, described, geometry_of, load, synthesize
from llama_workbench.datasets.geometries import Geometry
from llama_workbench.datasets.tokenizer import TokenizerError
from llama_workbench.harness.examiner import reference as examiner
from llama_workbench.variants.config import RopeScaling

LLAMA3 = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def changed(name: str, **changes: Any) -> Geometry:
    """A shipped geometry with other numbers."""
    geometry = geometries.get(name)
    return dataclasses.replace(geometry, name=f"{name}-changed", config=dataclasses.replace(geometry.config, **changes))


TINY = geometries.get("tiny")
TIED = changed("tiny-gqa", rope_theta=500_000.0, rope_scaling=LLAMA3, tie_word_embeddings=True)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(cache: Path, tmp_path: Path) -> Path:
    """A checkpoint folder of one's own to spoil."""
    return Path(shutil.copytree(synthesize(TINY, cache=cache), tmp_path / "my-llama"))


def edit_config(folder: Path, **changes: Any) -> None:
    """Set keys of config.json; None removes."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def edit_weights(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    weights = {name: tensor.clone() for name, tensor in load_file(path).items()}
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


def transformers_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def assert_same_weights(checkpoint: Checkpoint, model: Any, dtype: torch.dtype = torch.float32) -> None:
    expected = model.state_dict()
    assert set(checkpoint.weights) == set(expected)
    for name, tensor in checkpoint.weights.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, expected[name].to(dtype)), name


def in_python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Run a piece of code in a new process, with the workbench importable."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


# --- synthetic ---


@pytest.mark.parametrize("geometry", [TINY, geometries.get("tiny-gqa"), TIED], ids=lambda geometry: geometry.name)
def test_transformers_computes_sane_logits_from_a_synthetic_folder(geometry: Geometry, cache: Path) -> None:
    path = synthesize(geometry, cache=cache)
    model = transformers_model(path)
    tokens = torch.arange(3, 3 + 2 * 48).reshape(2, 48)
    with torch.inference_mode():
        output = model(tokens, output_hidden_states=True)
    assert torch.isfinite(output.logits).all()
    assert 0.7 < output.logits.std() < 1.4
    assert output.logits.abs().max() < 10
    assert all(0.01 < hidden.std() < 3 for hidden in output.hidden_states)
    assert_same_weights(load(path, cache=cache), model)


def test_activations_keep_their_size_in_a_deep_model(cache: Path) -> None:
    model = transformers_model(synthesize(changed("tiny", num_hidden_layers=40), cache=cache))
    with torch.inference_mode():
        output = model(torch.arange(64)[None], output_hidden_states=True)
    assert all(hidden.std() < 2 for hidden in output.hidden_states)
    assert 0.7 < output.logits.std() < 1.4


def test_config_is_spelled_for_transformers_4_and_5(cache: Path) -> None:
    from transformers import AutoConfig

    path = synthesize(TIED, cache=cache)
    raw = json.loads((path / "config.json").read_text())
    assert raw["rope_theta"] == 500_000.0
    assert raw["rope_scaling"]["rope_type"] == "llama3"
    assert raw["torch_dtype"] == "float32"
    read = AutoConfig.from_pretrained(path)
    assert read.rope_parameters == {"rope_type": "llama3", "rope_theta": 500_000.0, **vars(LLAMA3)}
    assert read.dtype == torch.float32
    assert read.tie_word_embeddings is True


def test_transformers_finds_the_tokenizer(cache: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(synthesize(TINY, cache=cache))
    ids = tokenizer("The Zen of Python", add_special_tokens=False)["input_ids"]
    assert max(ids) < TINY.config.vocab_size
    assert tokenizer.decode(ids) == "The Zen of Python"


def test_same_seed_gives_the_same_bytes_and_another_seed_others(cache: Path, tmp_path: Path) -> None:
    first, again = synthesize(TINY, cache=cache), synthesize(TINY, cache=tmp_path)
    assert first.name == again.name
    for file in sorted(path.name for path in first.iterdir()):
        assert (first / file).read_bytes() == (again / file).read_bytes()
    other = load(synthesize(TINY, seed=1, cache=cache), cache=cache)
    same = load(first, cache=cache)
    assert other.digest != same.digest
    assert all(not torch.equal(other.weights[name], tensor) for name, tensor in same.weights.items())


def test_a_tensor_does_not_depend_on_those_drawn_before_it(cache: Path) -> None:
    two = load(synthesize(TINY, cache=cache), cache=cache).weights
    five = load(synthesize(changed("tiny", num_hidden_layers=5), cache=cache), cache=cache).weights
    for name in ("model.layers.1.self_attn.q_proj.weight", "model.norm.weight", "lm_head.weight"):
        assert torch.equal(two[name], five[name])
    ratio = five["model.layers.1.mlp.down_proj.weight"] / two["model.layers.1.mlp.down_proj.weight"]
    assert torch.allclose(ratio, torch.full_like(ratio, math.sqrt(2 / 5)))  # residual writers shrink with depth


def test_a_written_folder_is_used_again(tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    path = synthesize(TINY, cache=tmp_path, progress=lambda name, share: seen.append((name, share)))
    shares = [share for _, share in seen]
    assert len(seen) == len(load_file(path / "model.safetensors"))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    before = (path / "model.safetensors").stat()
    assert synthesize(TINY, cache=tmp_path, progress=lambda *_: pytest.fail("written again")) == path
    assert (path / "model.safetensors").stat() == before


def test_cache_directory_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "elsewhere"))
    assert synthesize(TINY).is_relative_to(tmp_path / "elsewhere")


def test_tensors_are_aligned_and_one_at_a_time_in_memory(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from pathlib import Path
        from llama_workbench.datasets import geometries
        from llama_workbench.datasets.checkpoints import load, synthesize
        import dataclasses
        tiny = geometries.get("tiny")
        synthesize(tiny, cache=Path(sys.argv[1]))  # imports and buffers
        wide = {"hidden_size": 1024, "head_dim": 256, "intermediate_size": 2816, "num_hidden_layers": 3}
        config = dataclasses.replace(tiny.config, **wide)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        folder = synthesize(dataclasses.replace(tiny, config=config), cache=Path(sys.argv[1]))
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
        print((folder / "model.safetensors").stat().st_size)
        print(sum(tensor.data_ptr() % 64 for tensor in load(folder, cache=Path(sys.argv[1])).weights.values()))
    """
    grown_bytes, file_bytes, misaligned = map(int, finished(in_python(code, tmp_path)).split())
    largest_bytes = 1024 * 2816 * 4
    assert file_bytes > 12 * largest_bytes
    assert grown_bytes < 2 * largest_bytes
    assert misaligned == 0


RACER = """
    import sys, time
    from pathlib import Path
    from llama_workbench.datasets import geometries
    from llama_workbench.datasets.checkpoints import load, synthesize
    cache, me, other = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    me.touch()
    while not other.exists():
        time.sleep(0.001)
    seen = []
    folder = synthesize(geometries.get("15m"), cache=cache, progress=lambda name, share: seen.append(name))
    print(folder.name, load(folder, cache=cache).digest, len(seen))
"""


def test_two_processes_may_write_the_same_folder(tmp_path: Path) -> None:
    for attempt in range(5):  # on a busy machine one may be done before the other begins, which proves nothing
        cache, a, b = tmp_path / f"cache-{attempt}", tmp_path / f"a-{attempt}", tmp_path / f"b-{attempt}"
        racers = [in_python(RACER, cache, a, b), in_python(RACER, cache, b, a)]
        (name, digest, wrote), (other_name, other_digest, other_wrote) = (finished(racer).split() for racer in racers)
        assert (name, digest) == (other_name, other_digest)
        assert [path.name for path in (cache / "checkpoints").iterdir()] == [name]
        assert load(cache / "checkpoints" / name, cache=cache).parameters == 15_191_712
        if int(wrote) > 0 and int(other_wrote) > 0:
            return
    pytest.fail("the two processes never were at it at the same time")


def test_a_killed_process_leaves_no_folder_and_its_remains_are_removed(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from llama_workbench.datasets import geometries
        from llama_workbench.datasets.checkpoints import synthesize
        def wait(name, share):
            print("half", flush=True)
            time.sleep(60)
        synthesize(geometries.get("tiny"), cache=Path(sys.argv[1]), progress=wait)
    """
    process = in_python(code, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    remains = list((tmp_path / "checkpoints").iterdir())
    assert [path.name.startswith(".partial-") for path in remains] == [True]

    path = synthesize(TINY, cache=tmp_path)
    assert load(path, cache=tmp_path).synthetic
    assert remains[0].exists()  # may still be at work, for all anybody knows
    long_ago = time.time() - 7200
    for left in [*remains[0].rglob("*"), remains[0]]:
        os.utime(left, (long_ago, long_ago))
    synthesize(TINY, seed=1, cache=tmp_path)
    assert not remains[0].exists()


def test_a_damaged_synthetic_folder_is_written_again(tmp_path: Path) -> None:
    path = synthesize(TINY, cache=tmp_path)
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-100])
    assert synthesize(TINY, cache=tmp_path) == path
    assert (path / "model.safetensors").read_bytes() == whole
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_a_disk_that_fills_up_is_named_and_nothing_stays(tmp_path: Path) -> None:
    code = """
        import resource, signal, sys
        from pathlib import Path
        from llama_workbench.datasets import geometries
        from llama_workbench.datasets.checkpoints import synthesize
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            synthesize(geometries.get("tiny"), cache=Path(sys.argv[1]))
        except OSError as error:
            print(type(error).__name__, error)
    """
    said = finished(in_python(code, tmp_path))
    assert said.startswith(f"CacheError {tmp_path / 'checkpoints'}")
    needed = re.search(r"([\d,]+) bytes are needed \(File too large\)", said)
    assert needed is not None
    weights_bytes = 4 * 166_208
    assert weights_bytes < int(needed[1].replace(",", "")) < weights_bytes + 10_000
    assert "WORKBENCH_CACHE" in said
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_disk_without_room_is_named_before_anything_is_written(tmp_path: Path) -> None:
    huge = changed("tiny", intermediate_size=10**13)
    with pytest.raises(
        CacheError, match=r"15,360,000,\d{3},\d{3},\d{3} bytes are needed \(only [\d,]+ bytes are free\)"
    ):
        synthesize(huge, cache=tmp_path)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_cache_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match=r"file/checkpoints/tiny.*cannot be written.*set WORKBENCH_CACHE"):
        synthesize(TINY, cache=tmp_path / "file")


# --- real folders ---


def saved(path: Path, *, dtype: torch.dtype = torch.float32, shards: str | None = None, **changes: Any) -> Any:
    """A model of transformers' own making, saved by it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    values: dict[str, Any] = {
        "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    model: Any = LlamaForCausalLM(LlamaConfig(**values | changes))
    model.to(dtype)
    model.save_pretrained(path, max_shard_size=shards or "5GB")
    return model


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_half_precision_is_converted(dtype: torch.dtype, tmp_path: Path, cache: Path) -> None:
    model = saved(tmp_path / "m", dtype=dtype)
    assert_same_weights(load(tmp_path / "m", cache=cache), model)
    assert_same_weights(load(tmp_path / "m", dtype=torch.float64, cache=cache), model, torch.float64)


def test_shards(tmp_path: Path, cache: Path) -> None:
    model = saved(tmp_path / "m", shards="100KB")
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 2
    checkpoint = load(tmp_path / "m", cache=cache)
    assert_same_weights(checkpoint, model)
    assert (checkpoint.name, checkpoint.synthetic) == ("m", False)
    assert checkpoint.parameters == sum(tensor.numel() for tensor in model.parameters())


def test_tied_embeddings_are_one_tensor(tmp_path: Path, cache: Path) -> None:
    model = saved(tmp_path / "m", tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(tmp_path / "m" / "model.safetensors")
    checkpoint = load(tmp_path / "m", dtype=torch.bfloat16, cache=cache)
    assert checkpoint.weights["lm_head.weight"] is checkpoint.weights["model.embed_tokens.weight"]
    assert checkpoint.parameters == sum(tensor.numel() for tensor in model.parameters())
    assert_same_weights(checkpoint, model, torch.bfloat16)


def test_a_head_beside_tied_embeddings_must_equal_them(folder: Path, cache: Path) -> None:
    edit_config(folder, tie_word_embeddings=True)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings = True, but lm_head\.weight differs"):
        load(folder, cache=cache)
    edit_weights(folder, lambda weights: weights["lm_head.weight"].copy_(weights["model.embed_tokens.weight"]))
    assert_same_weights(load(folder, cache=cache), transformers_model(folder))


def test_head_dim_given_or_derived(tmp_path: Path, cache: Path) -> None:
    saved(tmp_path / "wide", head_dim=32)
    assert load(tmp_path / "wide", cache=cache).config.head_dim == 32
    saved(tmp_path / "plain")
    edit_config(tmp_path / "plain", head_dim=None)
    assert load(tmp_path / "plain", cache=cache).config.head_dim == 16


def test_rope_scaling_in_both_spellings(tmp_path: Path, cache: Path) -> None:
    rope = {"rope_type": "llama3", **vars(LLAMA3)}
    saved(tmp_path / "m", rope_parameters={**rope, "rope_theta": 250_000.0})
    raw = json.loads((tmp_path / "m" / "config.json").read_text())
    assert "rope_scaling" not in raw and "rope_theta" not in raw  # so this is transformers 5's spelling
    new = load(tmp_path / "m", cache=cache).config
    assert (new.rope_theta, new.rope_scaling) == (250_000.0, LLAMA3)

    edit_config(tmp_path / "m", rope_parameters=None, rope_theta=250_000.0, rope_scaling=rope)
    assert load(tmp_path / "m", cache=cache).config == new
    legacy = {"type": "llama3", **vars(LLAMA3)}
    edit_config(tmp_path / "m", rope_scaling=legacy)
    assert load(tmp_path / "m", cache=cache).config == new
    edit_config(tmp_path / "m", rope_scaling=None, rope_theta=None)
    plain = load(tmp_path / "m", cache=cache).config
    assert (plain.rope_theta, plain.rope_scaling) == (10_000.0, None)


def test_config_is_read_back_as_it_was_written(cache: Path) -> None:
    for geometry in (TINY, TIED, geometries.get("tiny-gqa")):
        checkpoint = load(synthesize(geometry, cache=cache), cache=cache)
        assert checkpoint.config == geometry.config
        assert (checkpoint.name, checkpoint.synthetic) == (geometry.name, True)
        unique = {tensor.data_ptr(): tensor.numel() for tensor in checkpoint.weights.values()}
        assert checkpoint.parameters == sum(unique.values())


@pytest.mark.parametrize("promised", [True, False])
def test_biases_that_are_all_zero_are_left_out(promised: bool, folder: Path, cache: Path) -> None:
    plain = load(folder, cache=cache)
    add_biases(folder, -0.0, *(("q", "k", "v", "o", "gate", "up", "down") if promised else ("q", "k", "v")))
    edit_config(folder, attention_bias=promised, mlp_bias=promised)
    config, told = described(folder, cache=cache)
    assert "biases all zero and left out" in told and config == plain.config
    weights = load(folder, cache=cache).weights
    assert weights.keys() == plain.weights.keys()
    tokens = torch.arange(40)[None]
    ours = variants.get("fast").build(config, weights, max_length=40)
    with torch.inference_mode():
        torch.testing.assert_close(ours.forward(tokens, 0), transformers_model(folder)(tokens).logits[:, -1])


@pytest.mark.parametrize("heads", [(9, 1, 24), (3, 3, 16), (4, 2, 32)])
def test_heads_of_any_number_and_size_are_computed_by_all(heads: tuple[int, int, int], cache: Path) -> None:
    """Where heads do not divide the width, and where they make up more or less than it."""
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    checkpoint = load(synthesize(changed("tiny", **dict(zip(names, heads, strict=True))), cache=cache), cache=cache)
    tokens = torch.arange(3, 3 + 2 * 24).reshape(2, 24)
    wanted = examiner.logits(checkpoint.config, checkpoint.weights, tokens, first=23)[:, 0]
    compared = "transformers_eager transformers_static yardstick team003 team005_planned fast gpt_fast"
    for name in compared.split():
        model = variants.get(name).build(checkpoint.config, checkpoint.weights, max_length=32)
        with torch.inference_mode():
            torch.testing.assert_close(model.forward(tokens, 0), wanted, rtol=0, atol=2e-5, msg=name)


def test_a_checkpoint_without_a_tokenizer_is_said_to_have_none(folder: Path, cache: Path) -> None:
    assert described(folder, cache=cache)[1].endswith(", with a tokenizer")
    (folder / "tokenizer.json").unlink()
    told = geometry_of(folder, "here").description
    assert told.endswith(", no tokenizer: prompts are token ids drawn at random")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: no tokenizer comes of it .*; take the file from"):
        geometry_of(folder, "here")


def test_old_buffers_are_passed_over(folder: Path, cache: Path) -> None:
    edit_weights(folder, lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}))
    assert not any("inv_freq" in name for name in load(folder, cache=cache).weights)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_weights_are_views_of_the_file_and_writing_to_them_does_not_reach_it(folder: Path, cache: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    tensor = load(folder, cache=cache).weights["model.layers.0.mlp.up_proj.weight"]
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]
    ranges = [tuple(int(end, 16) for end in fields[0].split("-")) for fields in maps]
    assert any(start <= tensor.data_ptr() < end for start, end in ranges)
    tensor.zero_()
    assert (folder / "model.safetensors").read_bytes() == before


def test_digest_covers_what_it_says(folder: Path, cache: Path, tmp_path: Path) -> None:
    saved(tmp_path / "a")
    first = load(tmp_path / "a", cache=cache).digest
    moved = shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert load(moved, cache=cache).digest == first
    edit_weights(moved, lambda weights: weights["model.layers.1.mlp.up_proj.weight"][0, 0].add_(1))
    assert load(moved, cache=cache).digest != first
    edit_config(tmp_path / "a", rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5.0})
    assert load(tmp_path / "a", cache=cache).digest != first


def test_finite_values_are_checked_once_per_file(folder: Path, cache: Path) -> None:
    load(folder, cache=cache)
    path = folder / "model.safetensors"
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-4:] = struct.pack("<f", math.nan)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    load(folder, cache=cache)  # same path, size and time: taken as checked
    os.utime(path)
    with pytest.raises(CheckpointError, match="NaN"):
        load(folder, cache=cache)


def test_a_damaged_memory_of_checks_means_checking_again(folder: Path, tmp_path: Path) -> None:
    memory = tmp_path / "finite.json"
    for content in ("[]", "{", "\0"):
        memory.write_text(content)
        load(folder, cache=tmp_path)
        assert list(json.loads(memory.read_text())) == [str((folder / "model.safetensors").resolve())]


def test_an_unwritable_cache_does_not_stop_loading(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load(folder, cache=tmp_path / "file").parameters == 166_208


# --- bad input ---


def spoil_tensor(name: str, index: tuple[int, ...], value: float) -> Callable[[Path], object]:
    return lambda folder: edit_weights(folder, lambda weights: weights[name].__setitem__(index, value))


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: edit_weights(folder, lambda weights: weights.__delitem__(name))


def with_tensor(name: str, tensor: Tensor) -> Callable[[Path], object]:
    return lambda folder: edit_weights(folder, lambda weights: weights.update({name: tensor}))


def with_config(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: edit_config(folder, **changes)


def cut_file(size: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / "model.safetensors", size)


def with_file(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def without_shard(folder: Path) -> None:
    shutil.rmtree(folder)
    saved(folder, shards="100KB")
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def base_model_names(folder: Path) -> None:
    def rename(weights: dict[str, Tensor]) -> None:
        for name in list(weights):
            weights[name.removeprefix("model.")] = weights.pop(name)

    edit_weights(folder, rename)


def add_biases(folder: Path, value: float, *projections: str) -> None:
    """One for each of these projections in all layers, every number `value`."""

    def add(weights: dict[str, Tensor]) -> None:
        for name, weight in list(weights.items()):
            if any(f".{projection}_proj." in name for projection in projections):
                weights[name.replace("weight", "bias")] = torch.full((len(weight),), value)

    edit_weights(folder, add)


Q0 = "model.layers.0.self_attn.q_proj.weight"
LINEAR = {"rope_type": "linear", "factor": 2.0}

BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (
        lambda folder: (folder / "config.json").unlink(),
        r"config\.json: cannot be read \(No such file.*; name a folder with config\.json",
    ),
    "config not JSON": (with_file("config.json", b"{"), r"config\.json: not JSON"),
    "config a list": (with_file("config.json", b"[]"), r"config\.json: holds a list, expected an object"),
    "key missing": (with_config(hidden_size=None), r"config\.json: hidden_size is missing; fetch the checkpoint"),
    "epsilon missing": (with_config(rms_norm_eps=None), r"config\.json: rms_norm_eps is missing"),
    "not a number": (with_config(vocab_size="512"), r"vocab_size = '512', expected a valid integer"),
    "zero layers": (with_config(num_hidden_layers=0), r"num_hidden_layers = 0, expected greater than 0"),
    "uneven heads": (
        with_config(num_attention_heads=3, head_dim=None),
        r"num_attention_heads = 3, expected a divisor of",
    ),
    "uneven kv heads": (with_config(num_key_value_heads=3), r"num_key_value_heads = 3, expected a divisor of num_att"),
    "odd head_dim": (with_config(head_dim=15), r"head_dim = 15, expected an even number"),
    "wrong model": (with_config(model_type="mistral"), r"model_type = 'mistral', expected 'llama'"),
    "wrong activation": (with_config(hidden_act="gelu"), r"hidden_act = 'gelu', expected 'silu'"),
    "attention bias": (with_config(attention_bias=True), r"no bias, and config\.json promises some; fetch"),
    "mlp bias": (with_config(mlp_bias=True), r"no bias, and config\.json promises some; fetch"),
    "quantised config": (
        with_config(quantization_config={"quant_method": "gptq"}),
        r"quantised weights \(\{'quant_method': 'gptq'\}\).*unquantised checkpoint",
    ),
    "rope type": (
        with_config(rope_scaling=LINEAR, rope_parameters=None),
        r"rope_scaling\.rope_type = 'linear', expected 'llama3'",
    ),
    "rope keys": (
        with_config(rope_parameters={"rope_type": "llama3", "factor": 8.0}),
        r"rope_parameters\.low_freq_factor is missing",
    ),
    "rope partial": (
        with_config(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        r"partial_rotary_factor = 0\.5, expected 1\.0",
    ),
    "missing tensor": (without(Q0), rf"missing tensor {Q0} of shape \[64, 64\]"),
    "head missing": (without("lm_head.weight"), r"missing tensor lm_head.weight .*\"tie_word_embeddings\": true"),
    "base model": (base_model_names, r"missing tensor model\.embed_tokens\.weight"),
    "wrong shape": (
        with_tensor(Q0, torch.zeros(64, 32)),
        rf"model\.safetensors: {Q0}: shape \[64, 32\], expected \[64, 64\] by the model's numbers",
    ),
    "too many layers": (with_config(num_hidden_layers=1), r"model\.layers\.1\.\S+: unexpected tensor for 1 layers"),
    "bias tensor": (
        with_tensor(Q0.replace("weight", "bias"), torch.eye(64)[3]),
        r"model\.safetensors: model\.layers\.0\.self_attn\.q_proj\.bias: a bias that is not zero, and no variant adds",
    ),
    "quantised tensor": (
        with_tensor(Q0.replace("weight", "qweight"), torch.zeros(8)),
        r"q_proj\.qweight: unexpected tensor for 2 layers of plain weights",
    ),
    "integer tensor": (with_tensor(Q0, torch.zeros(64, 64, dtype=torch.int8)), r"dtype I8, expected one of F64, F32"),
    "NaN": (spoil_tensor(Q0, (3, 5), math.nan), rf"{Q0}: 1 of 4096 values are NaN or infinite, the first at \[3, 5\]"),
    "infinity": (spoil_tensor("model.norm.weight", (7,), -math.inf), r"model\.norm\.weight: 1 of 64 values are NaN"),
    "truncated": (cut_file(500_000), r"model\.safetensors: truncated or damaged \("),
    "trailing bytes": (cut_file(800_000), r"model\.safetensors: truncated or damaged \("),
    "no safetensors": (with_file("model.safetensors", struct.pack("<Q", 4) + b"junk"), r"truncated or damaged \("),
    "LFS pointer": (with_file("model.safetensors", b"version https://git-lfs"), r"Git LFS pointer.*git lfs pull"),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        r"neither model\.safetensors nor .*pickles",
    ),
    "missing shard": (without_shard, r"model-00002-of-\d+\.safetensors: cannot be read \(No such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folders_are_named(case: str, folder: Path, cache: Path) -> None:
    spoil, expected = BAD[case]
    spoil(folder)
    with pytest.raises(CheckpointError, match=expected) as caught:
        load(folder, cache=cache)
    assert folder.name in str(caught.value)
    assert "; " in str(caught.value)  # what to do about it


def test_values_beyond_float16_are_named(folder: Path, cache: Path) -> None:
    spoil_tensor(Q0, (0, 0), 1e6)(folder)
    load(folder, dtype=torch.bfloat16, cache=cache)
    with pytest.raises(CheckpointError, match=rf"{Q0}: has values beyond the range of float16"):
        load(folder, dtype=torch.float16, cache=cache)
