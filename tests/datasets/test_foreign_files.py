"""Files that strangers wrote: no plain file, too large, too deep, numbers out of all bounds. One line each, at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import CheckpointError, described, load, synthesize
from llama_workbench.datasets.files import open_regular
from llama_workbench.datasets.geometries import DataError
from llama_workbench.datasets.tokenizer import TokenizerError, text_ids
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims

TINY = geometries.get("tiny")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(cache: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(synthesize(TINY, cache=cache), tmp_path / "my-llama"))


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """What would be waited for without end fails instead."""

    def ring(*_: object) -> None:
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# --- what is no plain file ---


def prompts(path: Path) -> Any:
    return text_ids(path.parent, vocab_size=512, cache=path.parent / "kept")


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "config.json": (lambda path: load(path.parent, cache=path.parent), CheckpointError),
    "model.safetensors": (lambda path: load(path.parent, cache=path.parent), CheckpointError),
    "model.safetensors.index.json": (lambda path: load(path.parent, cache=path.parent), CheckpointError),
    "tokenizer.json": (prompts, TokenizerError),
    "claim.toml": (lambda path: load_claims(path.parent), ClaimError),
    "workloads.toml": (workloads.workloads, DataError),
    "geometries.toml": (geometries.geometries, DataError),
}


def no_file(kind: str, path: Path) -> str:
    """Puts something else in a file's place; what an error says of it."""
    match kind:
        case "named pipe":
            os.mkfifo(path)
            return "cannot be read (is a named pipe, expected a file)"
        case "device":
            path.symlink_to("/dev/zero")
            return "cannot be read (is a device, expected a file)"
        case "folder":
            path.mkdir()
            return "cannot be read (Is a directory)"
        case "loop":
            path.symlink_to(path)
            return "cannot be read (Too many levels of symbolic links)"
    raise AssertionError(kind)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in READERS
        for kind in ("named pipe", "device", "folder", "loop")
        if (name, kind) != ("model.safetensors.index.json", "loop")  # a link to nothing is no index
    ],
)
def test_what_is_no_plain_file_is_refused_before_it_is_read(name: str, kind: str, folder: Path) -> None:
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    (folder / name).unlink(missing_ok=True)
    said = no_file(kind, folder / name)
    if (name, kind) == ("model.safetensors", "loop"):
        said = "neither model.safetensors nor"
    read, error = READERS[name]
    with pytest.raises(error) as caught:
        read(folder / name)
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in READERS if name != "model.safetensors"])
def test_a_file_of_gigabytes_is_refused_before_it_is_read(name: str, folder: Path) -> None:
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    (folder / name).touch()
    os.truncate(folder / name, 1 << 33)
    read, error = READERS[name]
    with pytest.raises(error, match=r"cannot be read \(has 8,589,934,592 bytes, expected at most [\d,]+\)"):
        read(folder / name)


def test_a_shard_that_is_a_named_pipe_is_refused(folder: Path, cache: Path) -> None:
    places = {"model.norm.weight": "a.safetensors"}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    os.mkfifo(folder / "a.safetensors")
    with pytest.raises(CheckpointError, match=r"a\.safetensors: cannot be read \(is a named pipe, expected a file\)"):
        load(folder, cache=cache)


def test_a_socket_and_a_path_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("s")
        with pytest.raises(OSError, match="is a socket, expected a file"):
            open_regular(Path("s"))
    with pytest.raises(OSError, match="no path of a file"):
        open_regular(Path("a\0b"))


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".gguf"])
def test_a_checkpoint_with_a_name_that_is_too_long_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read \(File name too long\)"):
        load(tmp_path / name, cache=tmp_path)


def test_a_loop_in_place_of_a_checkpoint_or_of_claims_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CheckpointError, match=r"loop/config\.json: cannot be read"):
        load(tmp_path / "loop", cache=tmp_path)
    with pytest.raises(ClaimError, match="loop: no claims here"):
        load_claims(tmp_path / "loop")
    with pytest.raises(ClaimError, match=r"cannot be read|no claims here"):
        load_claims(tmp_path / ("x" * 300))


# --- Hugging Face folders ---


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(source: Path, cache: Path, said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        load(source, cache=cache)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rms_norm_eps", 1e24, r"rms_norm_eps = 1e\+24, expected less than 1"),
        ("rms_norm_eps", 10**400, r"rms_norm_eps = a number of 1,329 bits, expected"),
        ("rope_theta", 1e24, r"rope_theta = 1e\+24, expected less than or equal to 1000000000000"),
        ("rope_theta", 10**400, r"rope_theta = a number of 1,329 bits, expected"),
        ("rope_theta", 5e-324, r"rope_theta = 5e-324, expected greater than or equal to 1"),
        ("num_hidden_layers", 22, r"missing tensor model\.layers\.2\.input_layernorm\.weight"),
        ("num_hidden_layers", 10**9, r"num_hidden_layers = 1000000000, expected less than or equal to 1000"),
        ("num_hidden_layers", 10**400, r"num_hidden_layers = a number of 1,329 bits, expected"),
        ("max_position_embeddings", 2**31, r"max_position_embeddings = 2147483648, expected less than or equal"),
        ("vocab_size", [[]] * 9999, r"vocab_size = \[\[\], .*\.\.\.\], expected a valid integer"),
        ("hidden_act", "x" * 9999, r"hidden_act = 'xxx.*xxx', expected 'silu'"),
        ("tie_word_embeddings", "true", r"tie_word_embeddings = 'true', expected a valid boolean"),
        (
            "rope_parameters",
            {"rope_type": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 4.0}
            | {"factor": 8.0, "original_max_position_embeddings": 8},
            r"rope_parameters\.high_freq_factor = 4\.0, expected more than low_freq_factor = 4",
        ),
    ],
)  # fmt: skip
def test_a_number_out_of_all_bounds_in_a_config(key: str, value: Any, said: str, folder: Path, cache: Path) -> None:
    edit_json(folder / "config.json", **{"rope_parameters": None} | {key: value})
    refused(folder, cache, said)


def test_a_config_nested_deep(folder: Path, cache: Path) -> None:
    (folder / "config.json").write_text('{"model_type":' + "[" * 100_000 + "]" * 100_000 + "}")
    refused(folder, cache, r"config\.json: not JSON \(nested too deeply\)")


def edit_header(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON in front of the tensors; "DEEP" becomes lists in lists."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    edit(header)
    text = json.dumps(header).replace('"DEEP"', "[" * 100_000 + "]" * 100_000).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[end:])


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda header: header.update(__metadata__="text"), r"truncated or damaged \("),
        (lambda header: header["__metadata__"].update(llama_workbench="{}"), r"llama_workbench = '\{\}': no label of"),
        (lambda header: header[NORM].update(data_offsets=[0, 1e999]), r"truncated or damaged \("),
        (lambda header: header[NORM].update(shape="DEEP"), r"truncated or damaged \("),
        (lambda header: header.update({"x" * 99_999: 1}), r"truncated or damaged \("),
    ],
)
def test_a_safetensors_header_of_other_kinds(
    edit: Callable[[Any], object], said: str, folder: Path, cache: Path
) -> None:
    edit_header(folder, edit)
    refused(folder, cache, said)


@pytest.mark.parametrize("name", ["x" * 300, "a/b", "../b", "a\nb", "a\0b", 7, ["a"], "", "é" * 200])
def test_a_shard_with_a_name_that_no_file_has(name: Any, folder: Path, cache: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {NORM: name}}))
    refused(
        folder,
        cache,
        r"no weight_map from tensors to the files beside it|cannot be read \((File name too long|Is a directory)\)",
    )


def test_a_token_id_of_four_thousand_million(folder: Path, cache: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["e"] = 4_000_000_000
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(
        TokenizerError,
        match=r"tokenizer\.json: gives the id 4000000000, expected ids below the model's vocab_size = 512",
    ):
        text_ids(folder, vocab_size=512, cache=tmp_path)


# --- what was taken from the files ---


def test_what_was_taken_from_a_checkpoint_is_said_in_a_line(folder: Path, cache: Path) -> None:
    told = (
        "2 layers, width 64 (feed-forward 176), 4 heads of 16, 4 KV heads, context 128, epsilon 1e-05, "
        "rope theta 10000, vocabulary 512, F32, with a tokenizer"
    )
    assert described(folder, cache=cache)[1] == told
    edit_json(folder / "config.json", max_position_embeddings=64, rms_norm_eps=1e-6)
    assert "context 64, epsilon 1e-06" in described(folder, cache=cache)[1]
    (folder / "tokenizer.json").unlink()
    assert described(folder, cache=cache)[1].endswith("no tokenizer: prompts are token ids drawn at random")
