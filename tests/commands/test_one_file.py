"""Copies of presets: they compute what the preset does, and are right as they are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from llama_workbench.commands.app import main
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.calls.world import WorldTurn
from llama_workbench.harness.worker.correctness import (
    SMALL_LENGTH,
    run_cases,
    small_cases,
    small_geometries,
    small_weights,
    trace,
)
from llama_workbench.harness.worker.models import variant_from
from llama_workbench.variants.one_file import cannot_copy, one_file
from llama_workbench.variants.presets import presets

LEFT_OUT = ("grid_", "ladder_")
"""They are points between others; the two ends of each are copied."""

ENDS = (
    "grid_modular_split_fresh_composite", "grid_single_file_unified_per_model_fused", "ladder_inlined",
    "ladder_transposed",
)  # fmt: skip
COPIED = [name for name in presets() if not cannot_copy(name) and (name in ENDS or not name.startswith(LEFT_OUT))]
OURS = [name for name in COPIED if not name.startswith("transformers")]
"""Without the library, whose import takes longer than all of these; its adapter is copied as it stands."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine a second one is waited for more than it helps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def traced(build: Callable[..., Any], config: Any, weights: Any) -> list[Any]:
    """The operations of a prompt, of a chunk after it, and of a token."""
    with torch.no_grad():
        model, tokens = build(config, weights, max_length=SMALL_LENGTH), torch.arange(12)[None]

        def call() -> None:
            for begin, end in ((0, 6), (6, 11), (11, 12)):
                model.forward(tokens[:, begin:end], begin)

        call()
        model.reset()
        return list(trace(call).ops)


@pytest.mark.covers("variants", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_a_copy_does_what_the_preset_does(tmp_path: Path, name: str, turn: WorldTurn) -> None:
    text = one_file(name, "mine", "A copy.")
    (tmp_path / "mine.py").write_text(text)
    copy, preset = variant_from(parse(f"{tmp_path}/mine.py:mine", option="x"), turn).build, presets()[name].build
    for config in small_geometries().values():
        weights = small_weights(config, torch.float32)
        ours, theirs = (
            run_cases(build(config, weights, max_length=SMALL_LENGTH), small_cases(config)) for build in (preset, copy)
        )
        assert all(
            torch.equal(a, b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True)
        )
        assert traced(copy, config, weights) == traced(preset, config, weights)


@pytest.mark.covers("variants", "harness/worker")
@pytest.mark.long
@pytest.mark.parametrize("name", COPIED)
def test_a_copy_has_no_traps(name: str) -> None:
    text = one_file(name, "mine", "A copy.")
    tree = ast.parse(text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    [build] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "mine"]
    assert [each.arg for each in build.args.kwonlyargs] == ["max_length"]
    assert "phase:" not in text and "type: ignore" not in text


def test_the_librarys_adapter_is_told_what_the_preset_tells_it() -> None:
    text = one_file("transformers_static", "mine", "A copy.")
    assert "_built(config, weights, max_length=max_length, attention='sdpa', static=True)" in text
    assert "class LibraryLlama:" in text and "self.model.tie_weights()" in text


def test_a_copy_names_what_its_settings_chose() -> None:
    text = one_file("team005_proposal", "mine", "A copy.")
    assert "settings=Settings(layout='single_file', cache='unified', mask='per_model'))" in text


@pytest.mark.parametrize("name", [name for name in presets() if cannot_copy(name)])
def test_what_has_no_source_here_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["new", "variant", "mine.py", "--from", name, "--folder", str(tmp_path)])
    assert f"--from {name}: " in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.usefixtures("warm")
@pytest.mark.whole
def test_the_command_writes_a_file_that_passes_its_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(["new", "variant", "sub/mine.py", "--from", "team006_before"])
    said = capsys.readouterr().out
    assert "--add-variant sub/mine.py:mine --compare team006_before mine" in said
    assert "workbench check sub/mine.py" in Path("sub/mine.py").read_text()
    with pytest.raises(SystemExit, match="0"):
        main(["check", "sub/mine.py"])
    assert "mine: all 38 calls are right" in capsys.readouterr().out
