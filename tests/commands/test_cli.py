"""The `workbench` command as a user or a CI job meets it: its output, its errors and its exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT, variants
from llama_workbench.commands import app
from llama_workbench.commands.app import main
from llama_workbench.datasets.workloads import workloads
from llama_workbench.harness.claims.model import Claim
from llama_workbench.harness.claims.reading import DISPUTE_FILE
from llama_workbench.harness.store.folder import RunFolder
from tests.runs import FACTORS, write_run

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = "from llama_workbench.commands.app import main; main()"


@dataclass(frozen=True)
class Done:
    """What a command said, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str | Path, cwd: Path = REPOSITORY) -> Done:
    """What the entry point does with these arguments. In this process, which is ten times faster than a new one."""
    out, complaints = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(complaints),
        pytest.raises(SystemExit) as ended,
    ):
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, int)
    return Done(ended.value.code, out.getvalue(), complaints.getvalue())


def output(*arguments: str | Path, cwd: Path = REPOSITORY) -> str:
    """What a command that succeeds prints."""
    done = command(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def fails(*arguments: str | Path, cwd: Path = REPOSITORY) -> str:
    """The one line on stderr of a command that could not."""
    done = command(*arguments, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, ""), done
    [line] = done.stderr.splitlines()
    assert line.startswith("workbench: ")
    return line


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with results/runs/{same,slow} and results/baselines/main."""
    root = tmp_path_factory.mktemp("project")
    only = ["prefill-15m-t128", "decode-15m-c64"]
    write_run(root / "results/baselines/main", seed=1, only=only)
    write_run(root / "results/runs/same", seed=2, only=only)
    slow = {"team005_hybrid": FACTORS["team005_hybrid"] * 1.25}
    write_run(root / "results/runs/slow", seed=3, only=only, factors=slow)
    yield root


# -- lists -------------------------------------------------------------------------------------------------------------


def test_help_teaches() -> None:
    for arguments in ((), ("--help",), ("-h",)):
        text = output(*arguments)
        assert "pytest --benchmark" in text
        assert "workbench compare BASE NEW" in text
    for name in ("claims", "variants", "workloads", "runs", "compare", "judge"):
        text = output(name, "--help")
        assert "Usage: workbench " + name in text
        assert "--json" in text
    assert "1    a regression" in output("compare", "--help")


def test_every_module_has_commands_and_the_help_lists_them() -> None:
    modules = {path.stem for path in Path(app.__file__).parent.glob("*.py")} - {"__init__", "app", "shared"}
    package = app.__name__.rpartition(".")[0]
    here = {verb.module.removeprefix(f"{package}.") for verb in app.verbs().values() if package in verb.module}
    assert here == modules
    text = output("--help")
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in app.verbs())


def test_claims() -> None:
    found = json.loads(output("claims", "--json"))
    files = {*(ROOT / "claims").glob("*.toml")} - {ROOT / "claims" / DISPUTE_FILE}
    assert len(files) == len(found) > 0
    assert all(Claim.model_validate(claim) for claim in found)
    text = output("claims")
    for claim in found:
        assert f"{claim['id']} · {', '.join(claim['who'])}\n" in text


def test_variants() -> None:
    found = json.loads(output("variants", "--json"))
    assert [variant["name"] for variant in found] == variants.names()
    assert found[0].keys() == {"name", "description", "source", "factors", "installed"}
    assert found[0]["installed"] is True
    text = output("variants")
    assert all(f"\n{name} " in text for name in variants.names())
    one = json.loads(output("variants", "team006_after", "--json"))
    assert one == next(variant for variant in found if variant["name"] == "team006_after")
    assert "per_layer" in output("variants", "team006_after")
    assert "did you mean team006_after" in fails("variants", "team06_after")


def test_workloads() -> None:
    found = json.loads(output("workloads", "--json"))
    assert [workload["name"] for workload in found] == list(workloads())
    text = output("workloads")
    assert all(f"\n{name} " in text for name in workloads())


def test_claims_of_a_folder_of_ones_own_are_listed(tmp_path: Path) -> None:
    assert "no claims here" in fails("claims", "--claims-dir", tmp_path)
    shutil.copy(ROOT / "claims" / "cpu-only.toml", tmp_path)
    assert [claim["id"] for claim in json.loads(output("claims", "--claims-dir", tmp_path, "--json"))] == ["cpu-only"]


COMMANDS = (["claims"], ["variants"], ["workloads", "--json"], ["runs"], ["judge", "main"], ["compare", "main", "same"])


def test_no_command_loads_what_it_does_not_need(results: Path) -> None:
    program = """
import json, sys
from llama_workbench.commands.app import main
heavy = {"torch", "transformers", "streamlit", "plotly", "matplotlib", "memray"}
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as ended:
        print("ended", arguments, ended.code, sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(COMMANDS)],
        capture_output=True,
        text=True,
        cwd=results,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )
    assert done.stderr.splitlines() == [f"ended {arguments} 0 []" for arguments in COMMANDS]
    for said in ("rope-3x-5x", "team006_after", '"prefill-15m-t8"', "same", "supported", "no regression"):
        assert said in done.stdout


def test_lists_do_not_even_load_pandas() -> None:
    program = f"import atexit, sys\natexit.register(lambda: print('pandas' in sys.modules, file=sys.stderr))\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, "variants"], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    assert done.stderr == "False\n"


# -- runs --------------------------------------------------------------------------------------------------------------


def test_runs(results: Path, tmp_path: Path) -> None:
    (results / "results/runs/photos").mkdir(exist_ok=True)
    found = json.loads(output("runs", "--json", cwd=results))
    by_name = {Path(run["path"]).name: run for run in found}
    assert by_name.keys() == {"same", "slow", "photos"}
    assert by_name["same"]["verdicts"]["refuted"] > 0
    assert by_name["photos"]["problem"] == "no run.json and no samples"
    text = output("runs", cwd=results)
    assert "no run.json and no samples" in text
    assert "2026-01-02 03:04" in text
    (results / "results/runs/photos").rmdir()
    assert "No runs in" in output("runs", cwd=tmp_path)
    assert "no such folder" in fails("runs", tmp_path / "nowhere")


# -- compare -----------------------------------------------------------------------------------------------------------


def test_compare_exit_codes_and_files(results: Path, tmp_path: Path) -> None:
    done = command("compare", "main", "same", cwd=results)
    assert (done.returncode, done.stderr) == (0, "")
    assert "same against main: no regression" in done.stdout

    markdown = tmp_path / "reports" / "summary.md"
    done = command("compare", "results/baselines/main", "results/runs/slow", "--markdown", markdown, cwd=results)
    assert (done.returncode, done.stderr) == (1, "")
    assert "slow against main: regression" in markdown.read_text()

    done = command("compare", "main", "slow", "--json", cwd=results)
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], found["verdict"]) == (1, 1, "regression")
    assert command("compare", "main", "slow", "--threshold", "30", cwd=results).returncode == 0


def test_compare_cannot_tell(results: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", only=["mask-create-apply-t128"], judged=False)
    done = command("compare", "main", other.path, cwd=results)
    assert (done.returncode, done.stderr) == (2, "")
    assert "inconclusive: the two runs have nothing in common" in done.stdout


def test_compare_of_damaged_runs(results: Path, tmp_path: Path) -> None:
    broken = write_run(tmp_path / "broken", only=["decode-15m-c64"], judged=False)
    whole = (broken.path / "samples.parquet").read_bytes()
    (broken.path / "samples.parquet").write_bytes(whole[: len(whole) // 2])
    assert "samples.parquet: not a whole Parquet file" in fails("compare", "main", broken.path, cwd=results)
    assert "there is no such run folder" in fails("compare", "main", "nowhere", cwd=results)
    assert ": expected a number of percent above 0" in fails(
        "compare", "main", "same", "--threshold", "-1", cwd=results
    )
    assert ": expected a number of percent above 0" in fails(
        "compare", "main", "same", "--threshold", "nan", cwd=results
    )
    assert "cannot be written" in fails("compare", "main", "same", "--markdown", "/dev/null/x.md", cwd=results)


# -- judge -------------------------------------------------------------------------------------------------------------


def test_judging_again_gives_the_same_verdicts(results: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=4)
    before = run.records("verdicts.json")
    (run.path / "verdicts.json").unlink()
    text = output("judge", run.path)
    assert "depends* · mask-caching-helps · TEAM-005, TEAM-006" in text
    assert run.records("verdicts.json") == before
    assert json.loads(output("judge", run.path, "--json")) == before
    assert output("judge", run.path, "--markdown").startswith("| claim | said by | verdict |")


def test_a_killed_run_can_be_judged(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seed=4, killed=True)
    done = command("judge", run.path)
    assert done.returncode == 0
    assert "refuted* · refactor-2x-3x" in done.stdout
    assert "Identical code: no difference found in 7 checks" in done.stdout
    assert "still goes on or was killed" in done.stdout
    assert done.stderr == f"workbench: warning: {run.path}/samples.jsonl: the last line was cut off and is left out\n"
    assert {verdict["verdict"] for verdict in run.records("verdicts.json")} >= {"supported", "refuted", "depends"}
    assert (run.path / "samples.jsonl").exists()  # judging is no reason to end a run that may still go on


def test_a_comparison_without_a_claim(tmp_path: Path) -> None:
    only = ["prefill-15m-t128", "decode-15m-c64"]
    run = write_run(tmp_path / "run", only=only, compare=("team006_before", "team006_after"))
    before = run.records("verdicts.json")
    assert "  Is team006_after faster than team006_before? (same within ±1 %)\n" in output("judge", run.path)
    assert run.records("verdicts.json") == before
    assert before[0]["claim"] == "ad-hoc"
    assert {effect["verdict"] for effect in before[0]["effects"]} == {"faster", "same"}


def test_the_readme_is_written_and_checked(results: Path) -> None:
    readme = results / "README.md"
    readme.write_text("# Title\n<!-- verdicts:begin -->\n<!-- verdicts:end -->\nend\n")
    verdicts = results / "results/baselines/main/verdicts.json"
    stamp = verdicts.stat().st_mtime_ns

    done = command("judge", "main", "--write", "README.md", "--check", cwd=results)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "README.md: out of date; to update it: workbench judge results/baselines/main --write README.md\n"
    )
    assert "refuted" not in readme.read_text()
    assert verdicts.stat().st_mtime_ns == stamp  # a check writes nothing

    assert command("judge", "main", "--write", "README.md", cwd=results).returncode == 0
    text = readme.read_text()
    assert "**refuted**" in text
    assert text.startswith("# Title\n<!-- verdicts:begin -->\n| claim |")
    assert text.endswith("<!-- verdicts:end -->\nend\n")
    assert "This table is made by `workbench judge results/baselines/main --write README.md`." in text
    assert str(results) not in text

    assert command("judge", "main", "--check", cwd=results).returncode == 0
    # From another folder, by absolute paths, it is the same table.
    elsewhere = command("judge", results / "results/baselines/main", "--write", readme, "--check", cwd=REPOSITORY)
    assert elsewhere.returncode == 0, elsewhere.stderr
    readme.write_text(text.replace("refuted", "supported"))
    assert command("judge", "main", "--check", cwd=results).returncode == 1
    readme.write_text("no markers")
    assert "needs the two lines" in fails("judge", "main", "--write", "README.md", cwd=results)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.json", "{", "run.json: not JSON at line 1"),
        ("run.json", '{"format": 7}', "run.json: format 7, and this workbench reads format 1"),
        ("run.json", None, "run.json: missing"),
        ("claims.json", '[{"id": "x"}]', "claims.json[0]: title is missing"),
        ("claims.json", None, "claims.json: missing"),
        ("samples.parquet", "rubbish", "samples.parquet: not a whole Parquet file"),
        ("samples.parquet", None, "holds no samples"),
    ],
)
def test_damaged_runs_are_told_in_a_line_each(tmp_path: Path, name: str, content: str | None, said: str) -> None:
    run = write_run(tmp_path / "run", only=["decode-15m-c64"], judged=False)
    if content is None:
        (run.path / name).unlink()
    else:
        (run.path / name).write_text(content)
    done = command("judge", run.path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert all(line.startswith("workbench: ") for line in done.stderr.splitlines())


# -- the process -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("clams",), "No such command"),
        (("claims", "--jsn"), "No such option"),
        (("compare", "one"), "one: need at least two runs to compare: workbench compare BASE NEW"),
        (("compare", "a", "b", "--threshold", "much"), "Invalid value for '--threshold'"),
        (("judge", "nowhere"), "there is no such run folder"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], said: str) -> None:
    assert said in fails(*arguments)


@pytest.mark.parametrize("arguments", [("variants",), ("workloads", "--json")])
def test_a_reader_that_goes_away_is_no_error(arguments: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {"cwd": REPOSITORY, "stderr": subprocess.PIPE, "text": True}
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=writer, **settings)
    os.close(writer)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (141, "")


def test_a_full_disk_is_told(results: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "claims"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "workbench: cannot write the output (No space left on device)\n"


def test_the_entry_point_is_the_one_that_is_installed() -> None:
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["workbench"] == "llama_workbench.commands.app:main"


def test_a_run_of_its_own_is_left_as_it_was(results: Path) -> None:
    """Looking at runs changes nothing in them."""
    run = RunFolder(results / "results/runs/same")
    before = {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}
    output("runs", cwd=results)
    command("compare", "main", "same", cwd=results)
    assert {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()} == before
