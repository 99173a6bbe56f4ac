"""A file of a finished run that is not what the run wrote is told by all who read it."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.dashboard.views import data, entries
from llama_workbench.datasets.files import parse_json, parse_toml, short
from llama_workbench.harness.baselines.saved import save
from llama_workbench.harness.metrics.registry import judged_files
from llama_workbench.harness.report.standings import measure_standings, read_standings
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.store import forms, schema
from llama_workbench.harness.store.files import VERDICTS, RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder, describe
from llama_workbench.harness.store.passes import PHASES
from tests.commands.test_cli import Done, command, output
from tests.fuzz.run_files import AFTER, BEFORE, READERS, WORKLOAD, claims, write_whole_run
from tests.store.test_store import a_round

pytestmark = pytest.mark.whole

REPOSITORY = Path(__file__).resolve().parents[2]
CHANGED = "its content is not what the run wrote"
FILES = sorted(READERS)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return write_whole_run(tmp_path / "runs" / "one")


def change(run: RunFolder, name: str) -> None:
    """Turn a digit of the file into another one, or a byte from its middle."""
    path = run.path / name
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if 48 <= byte < 57] if name.endswith(".json") else []
    place = places[len(places) // 2] if places else len(content) // 2
    content[place] += 1 if content[place] < 255 else -1
    path.write_bytes(bytes(content))


def told(done: Done, name: str) -> bool:
    """Whether a line of stderr names the file, and says what is wrong with it and what to do."""
    lines = [line for line in done.stderr.splitlines() if not line.endswith(": written")]
    assert all(line.startswith("workbench: ") for line in lines)
    return any(f"{name}: {CHANGED}." in line and line.rstrip().endswith((".", "one")) for line in lines)


# -- every command tells -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_judge_tells(run: RunFolder, name: str) -> None:
    verdicts = (run.path / "verdicts.json").read_bytes()
    change(run, name)
    done = command("judge", run.path)
    assert told(done, name)
    assert (done.returncode == 2) == (name in judged_files())
    if name != "verdicts.json":
        assert (run.path / "verdicts.json").read_bytes() == verdicts, "the same, or not written"


@pytest.mark.parametrize("name", FILES)
def test_report_tells(run: RunFolder, name: str, tmp_path: Path) -> None:
    change(run, name)
    done = command("report", run.path)
    assert told(done, name) and (done.returncode == 2) == (name in judged_files())
    done = command("report", run.path, "--claim", "a-time", "--html", tmp_path / "page.html")
    assert told(done, name) and (done.returncode == 2) == (name in ("run.json", "verdicts.json"))


@pytest.mark.parametrize("name", FILES)
def test_compare_and_runs_and_the_baseline_tell(run: RunFolder, name: str, tmp_path: Path) -> None:
    other = write_whole_run(tmp_path / "other")
    change(run, name)
    done = command("compare", other.path, run.path)
    assert told(done, name) and other.path.name not in done.stderr
    assert (done.stdout == "") == (name in ("run.json", "samples.parquet"))
    [listed] = json.loads(output("runs", run.path.parent, "--json"))
    assert listed["status"] == "damaged" and f"{Path(name).name}: {CHANGED}." in listed["problem"]
    with pytest.raises(RunError, match=CHANGED):
        save(run, "kept", under=tmp_path / "baselines")


@pytest.mark.parametrize("name", FILES)
def test_the_dashboard_tells(run: RunFolder, name: str) -> None:
    good = READERS[name](run)
    change(run, name)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            shown = READERS[name](run)
        except RunError as error:
            assert f"{name}: {CHANGED}" in str(error)
            return
    assert any(CHANGED in str(one.message) for one in heard)
    if name == "standings.json":
        assert repr(shown) == repr(good), "the samples say the same"


def test_a_list_checks_what_it_shows_and_reads_no_samples(run: RunFolder) -> None:
    change(run, "samples.parquet")
    assert describe(run).problem is None
    assert CHANGED in str(describe(run, whole=True).problem)
    change(run, "verdicts.json")
    [entry] = entries.RunList(run.path.parent).entries()
    assert entry.summary.problem == f"verdicts.json: {CHANGED}. Judge the run again: workbench judge {run.path}"


# -- what else may happen to a folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["roofline.json", "phases.parquet", "findings.json", "memory.json", "samples.parquet"])
def test_a_file_that_is_gone_is_not_a_pass_that_never_was(run: RunFolder, name: str) -> None:
    (run.path / name).unlink()
    assert f"{name}: missing, and the run wrote it." in command("judge", run.path).stderr
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            READERS[name](run)
        except RunError as error:
            assert "missing, and the run wrote it" in str(error)
        else:
            assert any("missing, and the run wrote it" in str(one.message) for one in heard)


def test_a_file_that_the_run_did_not_write_feeds_no_verdict(run: RunFolder, tmp_path: Path) -> None:
    manifest = run.read_manifest()
    kept = (run.path / "roofline.json").read_bytes()
    (run.path / "roofline.json").unlink()
    run.seal(manifest)
    rejudge(run)
    (run.path / "roofline.json").write_bytes(kept)
    with pytest.raises(RunError, match=r"roofline\.json: the run did not write it \(SHA256SUMS does not list it\)"):
        rejudge(run)
    other = write_whole_run(tmp_path / "other")
    other.append_round(a_round(0))
    with pytest.raises(RunError, match=r"samples\.jsonl: the run did not write it"):
        other.read_samples()


def test_checksums_that_are_gone_are_missed(run: RunFolder) -> None:
    whole, listing = (run.path / "run.json").read_text(), (run.path / "SHA256SUMS").read_text()
    manifest = json.loads(whole)
    for rest in ({key: value for key, value in manifest.items() if key != "sealed"}, manifest):
        (run.path / "run.json").write_text(json.dumps(rest))
        for read in (run.read_manifest, lambda: run.records("roofline.json")):
            with pytest.raises(RunError, match=f"run.json: {CHANGED}"):
                read()
    (run.path / "run.json").write_text(whole)
    for content in (listing[:-1], listing.replace("  ", " ", 1), listing + "x\n", ""):
        (run.path / "SHA256SUMS").write_text(content)
        with pytest.raises(RunError, match=f"SHA256SUMS: {CHANGED}"):
            run.read_manifest()
    (run.path / "SHA256SUMS").unlink()
    with pytest.raises(RunError, match="SHA256SUMS: missing, and the run wrote it"):
        run.read_manifest()


def test_checksums_are_those_of_sha256sum(run: RunFolder) -> None:
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=run.path, capture_output=True, text=True)
    assert done.returncode == 0 and {line.removesuffix(": OK") for line in done.stdout.splitlines()} == {
        *READERS,
        "profiles/a.folded",
    }
    change(run, "profiles/a.folded")
    done = subprocess.run(check, cwd=run.path, capture_output=True, text=True)
    assert done.returncode == 1 and "profiles/a.folded: FAILED" in done.stdout


def test_one_command_writes_the_checksums_of_files_that_were_changed_by_hand(run: RunFolder) -> None:
    for name in ("run.json", "verdicts.json"):
        (run.path / name).write_text(json.dumps(json.loads((run.path / name).read_text())))
    (run.path / "memory.json").unlink()
    assert [error.path.name for error in run.changed()] == ["run.json"]
    subprocess.run([sys.executable, "-m", "llama_workbench.harness.store.files", run.path], check=True)
    assert run.changed() == []


def test_a_run_that_is_killed_while_it_is_sealed_goes_on_as_if_it_was_not(run: RunFolder) -> None:
    before = run.read_manifest() | {"status": "running"}
    before.pop("sealed")
    (run.path / "run.json").write_text(json.dumps(before))  # SHA256SUMS came first
    assert run.read_manifest() == before and run.sums.known() is None
    run.seal(before | {"status": "complete"})
    assert run.changed() == []


def test_a_word_that_is_no_verdict_is_refused_and_the_fix_is_said(run: RunFolder) -> None:
    """Pages and reports look up how each word is told: they meet no other one."""
    verdicts = run.records("verdicts.json")
    verdicts[0]["effects"][0]["verdict"] = "probably"
    (run.path / "verdicts.json").write_text(json.dumps(verdicts), encoding="utf-8")
    run.renew(VERDICTS)
    with pytest.raises(RunError, match=r"verdicts\.json: .*verdict = 'probably', .*supported.* workbench judge"):
        run.read(VERDICTS)
    assert describe(run).status == "damaged"


def test_a_kept_run_fits_its_checksums(run: RunFolder, tmp_path: Path) -> None:
    saved = save(run, "kept", under=tmp_path / "baselines")
    assert saved.changed() == [] and describe(saved, whole=True).problem is None
    assert rejudge(saved).verdicts == run.read(VERDICTS)


# -- judging again -----------------------------------------------------------------------------------------------------


def test_judging_again_writes_the_checksums_anew(run: RunFolder) -> None:
    verdicts, manifest = run.records("verdicts.json"), run.read_manifest()
    for name in ("verdicts.json", "standings.json"):
        change(run, name)
    said = command("judge", run.path).stderr
    assert said.count("It is written again.") == 2
    assert run.records("verdicts.json") == verdicts and run.changed() == []
    assert read_standings(run) == measure_standings(run)
    assert run.read_manifest() == manifest
    output("judge", run.path)  # and nothing is said


def test_a_judge_that_is_killed_between_two_files_leaves_a_run_that_can_be_judged(run: RunFolder) -> None:
    run.write_json("verdicts.json", run.records("verdicts.json")[:1])  # and run.json was not reached
    with pytest.raises(RunError, match=f"{CHANGED}. Judge the run again: workbench judge {run.path}"):
        run.records("verdicts.json")
    assert command("judge", run.path).returncode == 0
    assert len(run.records("verdicts.json")) == len(claims()) and run.changed() == []


def test_a_check_writes_nothing_and_tells(run: RunFolder, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- verdicts:begin -->\n<!-- verdicts:end -->\n")
    command("judge", run.path, "--write", readme)
    change(run, "verdicts.json")
    before = (run.path / "run.json").read_bytes()
    done = command("judge", run.path, "--write", readme, "--check")
    assert done.returncode == 0 and "Judge the run again" in done.stderr
    assert (run.path / "run.json").read_bytes() == before


# -- runs without a fault ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in (REPOSITORY / "results" / "baselines").iterdir()))
def test_committed_runs_open_without_a_word(name: str) -> None:
    source = RunFolder(REPOSITORY / "results" / "baselines" / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert describe(source, whole=True).problem is None and source.changed() == []
        assert data.read_run(source.path).problems == ()
        forms.check(schema.MANIFEST, source.read_manifest())
        assert source.read_json("standings.json")["made_from"] == source.digest()
        for file in ("roofline", "findings", "memory_sweep", "phases"):
            source.records(f"{file}.json")
        source.read_table(PHASES), source.read_samples()


def test_a_run_that_has_not_ended_is_read_without_a_word(tmp_path: Path) -> None:
    run = write_whole_run(tmp_path / "one", sealed=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in READERS.values():
            read(run)


# -- journals ----------------------------------------------------------------------------------------------------------


def journal_of(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "killed")
    for number in range(3):
        run.append_round(a_round(number))
    return run


def test_a_changed_digit_in_a_journal_is_told(tmp_path: Path) -> None:
    run = journal_of(tmp_path)
    path = run.path / "samples.jsonl"
    text = path.read_text()
    path.write_text(text.replace("1001000", "1001001", 1))
    with pytest.raises(RunError, match=r"line 2 is damaged \(its checksum .* does not fit\)\. Delete line 2"):
        run.read_samples()
    lines = text.splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].partition(',"crc"')[0] + "}\n" + lines[2])
    with pytest.raises(RunError, match=r"line 2 is damaged \(its checksum is missing or does not fit\)"):
        run.read_samples()
    path.write_text(lines[0].replace('"crc"', '"crx"'))
    with pytest.raises(RunError, match=r"line 1 is damaged \(unknown key 'crx'\)"):
        run.read_samples()


def test_rounds_that_run_json_counted_and_the_journal_lacks_are_told(tmp_path: Path) -> None:
    run = journal_of(tmp_path)
    workload = {"workload": {"name": "prefill-tiny-t16"}, "variants": [], "rounds": 3}
    run.write_json("run.json", {"format": 1, "unit": "process", "experiments": [workload]})
    run.read_samples()
    path = run.path / "samples.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.warns(RunWarning, match=r"2 rounds of prefill-tiny-t16, and run\.json counted 3: some were lost"):
        assert len(run.read_samples()) == 30


# -- a place and what was expected -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("instructions.json", f'"{BEFORE}"', f'"{AFTER}"', "entry 1 has the workload, variant of an earlier one"),
        ("roofline.json", "   128", '   "many"', "[0].samples[0][3] = 'many', expected a valid integer"),
        ("findings.json", '"count": 2', '"count": true', "[0].count = True, expected a valid integer"),
        ("findings.json", "7.25", "1e999", "line 8: 1e999 stands there, expected a finite number"),
        ("run.json", '"alpha": 0.01', '"alpha": 1.5', "alpha = 1.5, expected less than 1"),
        ("run.json", '"hidden_size": 288', '"hidden_size": "x"', "checkpoints.15m.hidden_size = 'x', expected a valid"),
        ("run.json", '"tokens": 128', '"tokens": -1', "experiments[0].workload.tokens = -1, expected greater"),
        ("run.json", '"fired": ', '"fired": "x", "was": ', "noise.controls[0].fired = 'x', expected a valid boolean"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, name: str, old: str, new: str, said: str) -> None:
    run = write_whole_run(tmp_path / "one", sealed=False)
    path = run.path / name
    text = path.read_text()
    if old not in text and "hidden_size" in old:
        text = text.replace('"parameters": 1000', f'"parameters": 1000, {old}')
    assert old in text
    path.write_text(text.replace(old, new, 1))
    done = command("judge", run.path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert f"{run.path / name}: {said}" in line
    assert WORKLOAD not in said


# -- values and texts of files that anybody may have written, within bounds --------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        10**10_000,
        -(10**10_000),
        "x" * 10**6,
        "a\nb\u2028c",
        [[]] * 10**5,
        {"a": {"b": {"c": {"d": {"e": 1}}}}},
        "\ud800",
    ],
    ids=["int", "negative", "text", "lines", "list", "tables", "surrogate"],
)
def test_any_value_is_shown_in_a_short_line(value: Any) -> None:
    shown = short(value)
    assert len(shown) <= 100
    assert shown.isprintable()
    shown.encode()


def test_common_values_are_shown_as_they_are() -> None:
    for value in (1, -7, 1e-5, "silu", None, True, [1, 2], {"a": 1}):
        assert short(value) == repr(value)


def test_texts_within_bounds_are_parsed_as_the_library_does() -> None:
    assert parse_toml('a.b = 1\n[[c]]\nd = "x. y. z."') == {"a": {"b": 1}, "c": [{"d": "x. y. z."}]}
    assert parse_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("{")
