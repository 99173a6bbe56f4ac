"""`[tool.llama-workbench.compare]` of a user's pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_workbench.commands.app import main
from llama_workbench.harness.baselines.thresholds import DEFAULTS, ConfigError, Thresholds, gate_of, read_thresholds

HEAD = "[tool.llama-workbench.compare]\n"


def read(folder: Path, text: str) -> Thresholds:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return read_thresholds(folder)


def test_the_nearest_file_with_our_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "packages" / "mine"
    inner.mkdir(parents=True)
    found = read(tmp_path, HEAD + 'gate = ["instructions", "memory"]\ntime = 9\n')
    assert (found.gate, found.time, found.memory) == (("instructions", "memory"), 9, DEFAULTS.memory)
    assert read(inner, "[tool.ruff]\nline-length = 100\n").time == 9  # a file without it is passed over
    assert read(inner, HEAD + "time = 8\n").time == 8
    assert read(inner, "[tool.llama-workbench]\n") == DEFAULTS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.llama-workbench]\ncomparee = {}", "comparee = {}: unknown key; did you mean 'compare'?"),
        (HEAD + "tiem = 5", "compare.tiem = 5: unknown key; did you mean 'time'?"),
        (HEAD + "time = 0", "compare.time = 0, expected a number of percent above 0"),
        (HEAD + "time = nan", "compare.time = nan, expected a number of percent above 0"),
        (HEAD + "memory = true", "compare.memory = True, expected a number of percent above 0"),
        (HEAD + 'instructions = "1"', "compare.instructions = '1', expected a number of percent above 0"),
        (HEAD + 'gate = ["tmie"]', "did you mean 'time'?"),
        (HEAD + "gate = []", "compare.gate = [], expected a list of one or more of time, instructions"),
        (HEAD + 'gate = ["time", "time"]', "without repeats"),
        ("[tool]\nllama-workbench = 3", "tool.llama-workbench = 3, expected a table"),
        ("[tool.llama-workbench", "pyproject.toml:1:22: not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_fix(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert all(line.startswith(str(tmp_path / "pyproject.toml")) for line in str(error.value).splitlines())


def test_the_command_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["compare", "one", "two", *options])
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert "did you mean 'instructions'?" in said("--gate", "time,instruction")
    Path("pyproject.toml").write_text(HEAD + "tiem = 5", encoding="utf-8")
    assert "tiem = 5: unknown key" in said()
    assert gate_of("instructions, time") == ("time", "instructions")
