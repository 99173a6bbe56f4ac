"""A run folder survives kills, full disks and damage, and says what is wrong with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llama_workbench import ROOT
from llama_workbench.harness.machine import environment
from llama_workbench.harness.spec.sample import Round, Sample
from llama_workbench.harness.spec.table import NameColumn, Table
from llama_workbench.harness.store.files import RunError, RunWarning
from llama_workbench.harness.store.folder import RunFolder, describe, list_runs
from llama_workbench.harness.store.schema import FORMAT, UNIT
from llama_workbench.harness.store.tables import COLUMNS, data_base, read_table, table_of, write_table
from tests.tables import table_of as table_from


def a_round(number: int, workload: str = "prefill-tiny-t16", process: int = 0) -> Round:
    samples = (
        Sample(variant, sub_round, position, 16, 3, 1_000_000 + 1000 * number + sub_round, 1_100_000, 0)
        for sub_round in range(5)
        for position, variant in enumerate(("yardstick", "team006_after", "team006_after@aa"))
    )
    return Round(workload, process, number, tuple(samples))


def a_manifest(**changes: object) -> dict[str, object]:
    manifest: dict[str, object] = {
        "format": FORMAT,
        "unit": UNIT,
        "id": "r1",
        "started": "2026-01-02T03:04:05+00:00",
        "status": "complete",
        "mode": "claims",
        "experiments": [{"workload": {"name": "prefill-tiny-t16"}, "variants": ["yardstick"]}],
    }
    return manifest | changes


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


# -- writing and reading back --------------------------------------------------------------------------------------


def test_samples_come_back_as_they_were_written(run: RunFolder) -> None:
    for number in range(3):
        run.append_round(a_round(number))
    from_journal = run.read_samples().frame()
    run.finish()
    from_parquet = run.read_samples().frame()

    assert not (run.path / "samples.jsonl").exists()
    pd.testing.assert_frame_equal(from_journal, from_parquet)
    assert list(from_parquet.columns) == list(COLUMNS)
    assert len(from_parquet) == 3 * 5 * 3
    row = from_parquet.iloc[-1]
    assert (row.variant, row["round"], row.sub_round, row.position) == ("team006_after@aa", 2, 4, 2)
    assert (row.tokens, row.repeats, row.cpu_ns, row.wall_ns, row.faults) == (16, 3, 1_002_004, 1_100_000, 0)
    schema = pq.read_schema(run.path / "samples.parquet")
    kinds = {field.name: "name" if field.type == pa.string() else str(field.type) for field in schema}
    assert kinds == {name: column.kind for name, column in COLUMNS.items()}
    column = pq.ParquetFile(run.path / "samples.parquet").metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


def test_a_snapshot_keeps_the_journal_and_the_journal_wins(run: RunFolder) -> None:
    run.append_round(a_round(0))
    run.snapshot()
    assert (run.path / "samples.jsonl").exists()
    assert len(pq.read_table(run.path / "samples.parquet")) == 15
    run.append_round(a_round(1))
    assert len(run.read_samples().frame()) == 30


def test_a_finished_run_can_be_taken_up_again(run: RunFolder) -> None:
    run.append_round(a_round(0))
    run.finish()
    run.append_round(a_round(0, process=1))
    frame = run.read_samples().frame()
    assert sorted(frame["process"].unique()) == [0, 1]
    assert len(frame) == 30
    run.finish()
    run.finish()  # a second one changes nothing
    assert len(run.read_samples().frame()) == 30


def test_a_damaged_snapshot_beside_a_good_journal_is_only_a_warning(run: RunFolder) -> None:
    run.append_round(a_round(0))
    (run.path / "samples.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.warns(RunWarning, match=r"journal samples\.jsonl was read instead"):
        assert len(run.read_samples().frame()) == 15


def test_a_line_that_was_cut_off_is_left_out_and_the_next_round_starts_a_line(run: RunFolder) -> None:
    run.append_round(a_round(0))
    run.append_round(a_round(1))
    journal = run.path / "samples.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    with pytest.warns(RunWarning, match="cut off"):
        assert set(run.read_samples().frame()["round"]) == {0}
    run.append_round(a_round(7))
    assert set(run.read_samples().frame()["round"]) == {0, 7}


def test_a_damaged_line_in_the_middle_is_named(run: RunFolder) -> None:
    for number in range(3):
        run.append_round(a_round(number))
    journal = run.path / "samples.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1][:30] + "\n" + lines[2])
    with pytest.raises(RunError, match=r"samples\.jsonl: line 2 is damaged .* Delete line 2"):
        run.read_samples().frame()


@pytest.mark.parametrize(
    "samples",
    [
        [["v", 0, 0, 16, 1, 10, 10, 0]],
        [["v", 0, 0, 16, 1, 10, 10.5, 0, 0, 0, 0, 0]],
        [[3, 0, 0, 16, 1, 10, 10, 0, 0, 0, 0, 0]],
        "none",
    ],
    ids=["short", "fraction", "no name", "no list"],
)
def test_a_journal_line_of_another_shape_is_named(run: RunFolder, samples: object) -> None:
    line = json.dumps({"workload": "w", "process": 0, "round": 0, "samples": samples})
    (run.path / "samples.jsonl").write_text(line + "\n")
    with pytest.raises(RunError, match=r"line 1 is damaged \((a sample|.samples.) .*is not"):
        run.read_samples().frame()


def test_what_no_run_can_have_measured_is_refused(run: RunFolder) -> None:
    record = a_round(0)
    run.append_round(record._replace(samples=(*record.samples, record.samples[0])))
    with pytest.raises(RunError, match="yardstick occurs twice in workload prefill-tiny-t16, process 0, round 0"):
        run.read_samples().frame()
    (run.path / "samples.jsonl").unlink()
    run.append_round(Round("w", 0, 0, (Sample("v", 0, 0, 16, 0, 1, 1, 0),)))
    with pytest.raises(RunError, match="no calls or no time"):
        run.read_samples().frame()


def test_a_round_that_could_not_be_read_back_is_not_written(run: RunFolder) -> None:
    with pytest.raises(ValueError, match="not a round"):
        run.append_round(Round("w", 0, 0, (Sample("v", 0, 0, 16, 1, 1.5, 1, 0),)))  # type: ignore[arg-type]
    assert not (run.path / "samples.jsonl").exists()


def a_verdict(**effect: object) -> dict[str, object]:
    numbers = {"ratio": 1.0, "low": 0.9, "high": 1.1, "rounds": 3, "seconds": 0.1, "notes": []}
    names = {"workload": "w", "variant": "v", "baseline": "b", "metric": "cpu time", "verdict": "supported"}
    effects = [names | numbers | effect]
    return {"claim": "c", "who": [], "verdict": "supported", "reason": "", "effects": effects}


def test_json_is_replaced_whole_and_holds_no_infinity(run: RunFolder) -> None:
    run.write_json(
        "verdicts.json", [a_verdict(low=0.5, high=float("inf"), ratio=np.float64("nan"), rounds=np.int32(3))]
    )
    text = (run.path / "verdicts.json").read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    effect = run.records("verdicts.json")[0]["effects"][0]
    assert (effect["low"], effect["high"], effect["ratio"], effect["rounds"]) == (0.5, None, None, 3)
    with pytest.raises(TypeError):
        run.write_json("verdicts.json", [object()])
    assert (run.path / "verdicts.json").read_text() == text
    assert [path.name for path in run.path.iterdir()] == ["verdicts.json"]
    with pytest.raises(ValueError, match="plain name"):
        run.write_json("../verdicts.json", [])


# -- kills and full disks ------------------------------------------------------------------------------------------


FILL = """
import json, resource, sys
from tests.store.test_store import a_round
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
run = RunFolder(sys.argv[1])
said = {}
run.write_json("run.json", {"format": 1, "unit": "process", "small": True})
number = 0
try:
    while True:
        run.append_round(a_round(number))
        number += 1
except RunError as error:
    said["append"] = str(error)
said["rounds"] = number
try:
    run.write_json("run.json", {"format": 1, "unit": "process", "large": "x" * 2_000_000})
except RunError as error:
    said["json"] = str(error)
try:
    run.finish()
except RunError as error:
    said["finish"] = str(error)
print(json.dumps(said))
"""


@pytest.mark.filterwarnings("error")
def test_a_disk_without_room_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of a file stands for a full disk, in a process of its own. (-B: what Python compiles there
    would be cut off, and kept.)"""
    folder = RunFolder.create(tmp_path / "run").path
    command = [sys.executable, "-B", "-c", FILL, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["rounds"] > 5
    assert f"{folder}/samples.jsonl: cannot append a round" in said["append"] and "Free some space" in said["append"]
    assert "run.json: cannot be written" in said["json"] and "the earlier file is untouched" in said["json"]
    run = RunFolder(folder)
    assert run.read_manifest() == {"format": 1, "unit": "process", "small": True}
    rounds = sorted(run.read_samples().frame()["round"].unique())  # and no warning: warnings are errors here
    assert rounds == list(range(said["rounds"])) and not list(folder.glob(".*.tmp"))


# -- what may be a run folder --------------------------------------------------------------------------------------


def test_a_default_name_tells_the_time_and_does_not_collide(tmp_path: Path) -> None:
    runs = {RunFolder.create(under=tmp_path / "results").path for _ in range(5)}
    assert len(runs) == 5
    assert all(path.parent == tmp_path / "results" / "runs" and path.is_dir() for path in runs)
    assert all(path.name[:8] == time.strftime("%Y%m%d", time.gmtime()) for path in runs)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"not empty and holds no run.*Name a new or empty folder"):
        RunFolder.create(tmp_path)
    with pytest.raises(RunError, match="this is a file"):
        RunFolder.create(tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_earlier_run_is_moved_aside_not_mixed(run: RunFolder) -> None:
    run.append_round(a_round(0))
    for _ in range(2):
        with pytest.warns(RunWarning, match="was kept as"):
            again = RunFolder.create(run.path)
        assert not any(again.path.iterdir())
        again.append_round(a_round(5))
    assert set(RunFolder(run.path.with_name("run.earlier-1")).read_samples().frame()["round"]) == {0}
    assert set(RunFolder(run.path.with_name("run.earlier-2")).read_samples().frame()["round"]) == {5}


# -- damage --------------------------------------------------------------------------------------------------------


def finished(run: RunFolder) -> Path:
    run.append_round(a_round(0))
    run.finish()
    return Path(run.path) / "samples.parquet"


def test_a_cut_off_parquet_file(run: RunFolder) -> None:
    path = finished(run)
    whole = path.read_bytes()
    for size in (0, 3, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RunError, match=r"samples\.parquet: .*Parquet.* measure again"):
            run.read_samples().frame()


def test_a_parquet_file_with_damaged_pages(run: RunFolder) -> None:
    path = finished(run)
    whole = bytearray(path.read_bytes())
    whole[4:300] = b"\xff" * 296
    path.write_bytes(bytes(whole))
    with pytest.raises(RunError, match=r"samples\.parquet: "):
        run.read_samples().frame()


def test_a_parquet_file_with_other_columns(run: RunFolder) -> None:
    path = finished(run)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["cpu_ns", "faults"]), path)
    with pytest.raises(RunError, match="lacks the columns cpu_ns, faults"):
        run.read_samples().frame()
    pq.write_table(table.set_column(8, "cpu_ns", table["cpu_ns"].cast(pa.float64())), path)
    with pytest.raises(RunError, match="column cpu_ns is double, not int64"):
        run.read_samples().frame()
    pq.write_table(table.set_column(7, "repeats", pa.array([None] * len(table), pa.int32())), path)
    with pytest.raises(RunError, match="column repeats has empty cells"):
        run.read_samples().frame()
    pq.write_table(table.set_column(2, "process", pa.array([2**40] * len(table))), path)
    with pytest.raises(RunError, match="damaged"):
        run.read_samples().frame()


def test_a_number_that_changed_in_a_file_is_told(run: RunFolder) -> None:
    """Also where no page and no footer shows it: the file has a checksum of each column."""
    path = finished(run)
    table = pq.read_table(path)
    (run.path / "SHA256SUMS").unlink(missing_ok=True)
    changed = pa.array([*table["cpu_ns"].to_pylist()[:-1], 7], pa.int64())
    pq.write_table(table.set_column(table.schema.get_field_index("cpu_ns"), "cpu_ns", changed), path)
    with pytest.raises(RunError, match="damaged \\(column cpu_ns is not what was written\\)"):
        run.read_samples()


def test_parquet_from_another_writer_is_read(run: RunFolder) -> None:
    """Plain strings, other integer widths and an extra column are no reason to refuse the numbers."""
    path = finished(run)
    expected = run.read_samples().frame()
    frame = expected.astype({"workload": str, "variant": str, "process": "int64", "faults": "int64"}).assign(note="x")
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None), path)
    pd.testing.assert_frame_equal(run.read_samples().frame(), expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{not json", "not JSON at line 1"),
        (b"[]", "not an object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'{"format": 2}', "format 2, and this workbench reads format 1"),
        (b'{"format": true}', "format True"),
        (b"{}", "format None"),
        (b'{"format": 1, "unit": "process", "experiments": {}}', r": experiments = \{\}, expected a valid list"),
        (b'{"format": 1, "unit": "process", "excluded": 0}', ": excluded = 0, expected a valid list"),
        (
            b'{"format": 1, "unit": "process", "experiments": [{"workload": "w"}]}',
            r"experiments\[0\]\.workload = 'w', expected an object",
        ),
        (
            b'{"format": 1, "unit": "process", "experiments": [{"workload": {}, "variants": []}]}',
            r"experiments\[0\]\.workload\.name is missing",
        ),
        (
            b'{"format": 1, "unit": "process", "experiments": [], "environment": 3}',
            "environment = 3, expected an object",
        ),
    ],
)
def test_damaged_manifests(run: RunFolder, content: bytes, message: str) -> None:
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=message) as caught:
        run.read_manifest()
    assert caught.value.path == run.path / "run.json"
    assert describe(run).problem is not None


@pytest.mark.parametrize("unit", [{}, {"unit": "round"}])
def test_a_run_in_which_one_process_gave_many_values_is_refused(run: RunFolder, unit: dict[str, str]) -> None:
    run.write_json("run.json", {key: value for key, value in a_manifest().items() if key != "unit"} | unit)
    with pytest.raises(RunError) as caught:
        run.manifest()
    said = "run.json: made by an earlier version of the workbench, in which one process gave many values"
    assert str(caught.value) == f"{run.path}/{said}. Measure it again." and describe(run).problem == said


def test_missing_files_name_the_fix(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no samples"):
        run.read_samples().frame()
    with pytest.raises(RunError, match=r"run\.json: missing.*workbench runs"):
        run.read_manifest()
    with pytest.raises(RunError, match=r"verdicts\.json: missing\. Judge the run: workbench judge"):
        run.records("verdicts.json")
    for read in (RunFolder(tmp_path / "nowhere").read_manifest, RunFolder(tmp_path / "nowhere").read_samples):
        with pytest.raises(RunError, match="no such run folder"):
            read()
    assert run.records("profiles.json") == []


@pytest.mark.parametrize(
    ("verdicts", "message"),
    [
        ("{}", r"it = \{\}, expected a valid tuple"),
        ("[3]", r"\[0\] = 3, expected an object"),
        ('[{"claim": "c"}]', r"\[0\]\.who is missing"),
        (json.dumps([a_verdict(), a_verdict(rounds="many")]), r"\[1\]\.effects\[0\]\.rounds = 'many', exp"),
        (json.dumps([a_verdict(low="0.9")]), r"\[0\]\.effects\[0\]\.low = '0.9', expected a valid number"),
        (json.dumps([a_verdict(low=10**400)]), "line 1: 1000.* stands there, expected a finite number"),
        (json.dumps([a_verdict()]).replace("0.9", "1e999"), "line 1: 1e999 stands there, expected a finite number"),
        (json.dumps([a_verdict(high=float("nan"))]), "line 1: NaN stands there, expected a finite number"),
    ],
)
def test_damaged_verdicts(run: RunFolder, verdicts: str, message: str) -> None:
    (run.path / "verdicts.json").write_text(verdicts)
    with pytest.raises(RunError, match=message):
        run.records("verdicts.json")


# -- the list of runs ----------------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_and_damage_is_described(tmp_path: Path) -> None:
    for name, started in (("b", "2026-01-02T00:00:00+00:00"), ("a", "2026-01-03T00:00:00+00:00")):
        run = RunFolder.create(tmp_path / name)
        run.write_json("run.json", a_manifest(id=name, started=started))
        run.write_json("verdicts.json", [a_verdict(), a_verdict()])
    os.utime(tmp_path / "a", (1, 1))
    cut = RunFolder.create(tmp_path / "cut")
    cut.write_json("run.json", a_manifest(started="2026-01-01T00:00:00+00:00"))
    (cut.path / "samples.parquet").write_bytes(b"PAR1")
    broken = RunFolder.create(tmp_path / "broken")
    (broken.path / "run.json").write_text("{")
    os.utime(broken.path, (1, 1))
    (tmp_path / "photos").mkdir()
    os.utime(tmp_path / "photos", (0, 0))
    (tmp_path / "notes.txt").write_text("no run")

    runs = list_runs(tmp_path)
    assert [run.path.name for run in runs] == ["a", "b", "cut", "broken", "photos"]
    a, _, cut_summary, broken_summary, photos = [describe(run) for run in runs]
    assert (a.status, a.workloads, a.verdicts, a.problem) == ("complete", ("prefill-tiny-t16",), {"supported": 2}, None)
    assert cut_summary.status == "damaged"
    assert str(cut_summary.problem).startswith("samples.parquet: not a whole Parquet file")
    assert broken_summary.problem == "run.json: not JSON at line 1"
    assert photos.status == "not a run"
    assert list_runs(tmp_path / "nowhere") == []


# -- the machine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quota", "granted"), [(None, 8), (64.0, 8), (2.0, 2), (2.9, 2), (0.5, 1)])
def test_a_container_s_quota_counts_where_it_grants_fewer_cores(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, granted: int
) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 8)
    monkeypatch.setattr(environment, "_cgroup_quota_cores", lambda: quota)
    assert environment.granted_cores() == granted


def test_a_fingerprint_tells_the_machine_and_not_the_person() -> None:
    print_ = environment.fingerprint(1, allocator={"MALLOC_TRIM_THRESHOLD_": "1073741824"})
    text = json.dumps(print_)
    assert print_["cpu_model"]
    assert print_["cpu_flags"] == sorted(print_["cpu_flags"])
    assert print_["memory_bytes"] > 2**28
    assert print_["torch"]
    assert print_["malloc"] == {"MALLOC_TRIM_THRESHOLD_": "1073741824"}
    assert f'"{os.uname().nodename}"' not in text
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    assert environment.comparable(print_, json.loads(text)) == []
    assert "1 thread," in environment.one_line(print_)


def test_what_a_run_writes_is_no_change_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    as_someone = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], [*as_someone, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)

    def dirty(results: Path | None = None) -> bool:
        return environment.fingerprint(1, results=results)["commit"]["dirty"]

    for name in ("results", "m[i]ne", "m[i]ne.earlier-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    assert not dirty(tmp_path / "m[i]ne")
    assert dirty() and dirty(Path("elsewhere")) and dirty(tmp_path)
    (tmp_path / "claim.toml").touch()
    assert dirty(tmp_path / "m[i]ne")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cpu_flags": ["sse2"]}, "CPU flags: only the "),
        ({"cpu_model": "Other"}, "CPU: "),
        ({"torch": "1.0"}, "torch: .* against 1.0"),
        ({"libc": None}, "libc: .* against unknown"),
        ({"threads": 8}, "threads: 1 against 8"),
        ({"malloc": {"MALLOC_TRIM_THRESHOLD_": "1"}}, "malloc: as shipped against MALLOC_TRIM_THRESHOLD_=1"),
    ],
)
def test_what_makes_two_machines_different(change: dict[str, object], reason: str) -> None:
    base = environment.fingerprint(1)
    reasons = environment.comparable(base, base | change)
    assert len(reasons) == 1
    assert re.search(reason, reasons[0])
    assert environment.comparable(base, base | {"load_average": [9.0], "kernel": "x", "python": "3.99"}) == []


@pytest.mark.parametrize("key", ["cpu_model", "cpu_flags", "torch", "libc", "threads", "malloc"])
def test_what_neither_machine_has_is_no_difference(key: str) -> None:
    base = environment.fingerprint(1)
    lacking = base | {key: None}
    assert environment.comparable(lacking, lacking) == [] == environment.changed_since(lacking, lacking)
    for sides in ((base, lacking), (lacking, base)):
        [reason] = environment.comparable(*sides)
        assert "unknown" in reason


# -- the first token of a generation -------------------------------------------------------------------------------


def a_generation(number: int) -> Round:
    sample = Sample("fast", 0, 0, 8, 1, 9_000_000, 9_500_000, 0, 4_000_000, 4_200_000)
    return Round("generate-tiny-t8-n6-b1", 0, number, (sample,))


def test_first_tokens_come_back_and_others_have_none(run: RunFolder) -> None:
    run.append_round(a_round(0))
    run.append_round(a_generation(1))
    run.append_round(a_round(2))
    from_journal = run.read_samples().frame()
    run.finish()
    pd.testing.assert_frame_equal(from_journal, run.read_samples().frame())
    generated = from_journal["workload"] == "generate-tiny-t8-n6-b1"
    first = ["first_cpu_ns", "first_wall_ns"]
    assert from_journal.loc[generated, first].to_numpy().tolist() == [[4_000_000, 4_200_000]]
    assert (from_journal.loc[~generated, first] == 0).all().all()
    assert from_journal[first].dtypes.tolist() == [np.dtype("int64")] * 2


@pytest.mark.parametrize("first", [(9_000_001, 1), (-1, 1), (1, 9_500_001)])
def test_a_first_token_that_cannot_be_is_refused(run: RunFolder, first: tuple[int, int]) -> None:
    [sample] = a_generation(0).samples
    changed = sample._replace(first_cpu_ns=first[0], first_wall_ns=first[1])
    run.append_round(a_generation(0)._replace(samples=(changed,)))
    with pytest.raises(RunError, match=r"first token came after the last"):
        run.read_samples().frame()


def test_the_first_run_of_a_project_leaves_a_gitignore_and_no_other_touches_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    RunFolder.create(under=results)
    assert "runs/" in (results / ".gitignore").read_text().splitlines()
    (results / ".gitignore").write_text("mine\n")
    RunFolder.create(under=results)
    assert (results / ".gitignore").read_text() == "mine\n"
    RunFolder.create(tmp_path / "elsewhere" / "run")
    assert not list((tmp_path / "elsewhere").glob("**/.gitignore"))


def test_files_are_read_beside_each_other(tmp_path: Path) -> None:
    """As the sessions of a dashboard read them: each has views and types of its own in the one data base."""
    paths = [tmp_path / f"{number}.parquet" for number in range(6)]
    for number, path in enumerate(paths):
        row = {name: f"{name} {number}" if column.kind == "name" else number for name, column in COLUMNS.items()}
        write_table(table_of(COLUMNS, [list(row.values())]), path)
    with ThreadPoolExecutor(6) as threads:
        tables = list(threads.map(lambda path: read_table(path, COLUMNS), paths * 20))
    assert [(np.asarray(table["variant"]).tolist(), table["round"].tolist()) for table in tables] == [
        ([f"variant {number}"], [number]) for number in range(6)
    ] * 20


def test_a_data_base_that_gave_up_is_opened_anew() -> None:
    with pytest.raises(duckdb.FatalException), data_base() as first:
        before = first.execute("SELECT current_setting('threads')").fetchall()
        first.execute("CREATE TABLE of_the_first AS SELECT 1")
        raise duckdb.FatalException("the data base has been invalidated")
    with data_base() as second:
        assert second.execute("SELECT current_setting('threads')").fetchall() == before == [(1,)]
        assert not second.execute("SHOW TABLES").fetchall()


# -- tables in memory --------------------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"name": ["b", "a", "b", "c", "a"], "number": [3, -1, 3, 2**62, 5], "other": [7, 7, 7, -(2**62), 7]}
)


def test_rows_are_taken_by_their_names() -> None:
    table = table_from(FRAME)
    assert len(table) == 5 and table.names("name").values == ("b", "a", "c")
    assert list(table.where(name="a").rows()) == [("a", -1, 7), ("a", 5, 7)]
    assert len(table.where(name="nobody")) == 0
    assert table.names("name").are("a", "c", "nobody").tolist() == [False, True, False, True, True]
    with pytest.raises(TypeError, match="column number holds numbers"):
        table.names("number")


def test_keys_are_the_same_for_the_same_rows_and_in_their_order() -> None:
    table = table_from(FRAME)
    keys = table.keys("number", "name").tolist()
    assert keys[0] == keys[2] and len(set(keys)) == 4
    assert np.argsort(table.keys("number")).tolist() == np.argsort(FRAME["number"]).tolist()
    many = Table({f"c{i}": np.arange(1000) % (i + 700) for i in range(9)})  # 700 to the 9th is no 64-bit number
    wanted = pd.DataFrame(dict(many.columns)).groupby([*many.columns]).ngroup().tolist()
    assert np.unique(many.keys(*many.columns), return_inverse=True)[1].tolist() == wanted
    assert table.distinct("name", "other") == [("b", 7), ("a", 7), ("c", -(2**62))]


def test_rows_of_two_tables_are_put_together() -> None:
    first, second = table_from(FRAME[:2]), table_from(FRAME[2:])
    pd.testing.assert_frame_equal(first.and_then(second).frame().astype({"name": str}), FRAME.astype({"name": str}))


def test_a_table_without_rows_has_its_columns() -> None:
    empty = Table({"name": NameColumn.of([]), "number": np.empty(0, dtype=np.int64)})
    assert len(empty) == 0 and empty.distinct("name") == [] and list(empty.rows()) == []
    assert empty.frame().dtypes.astype(str).tolist() == ["category", "int64"]
    assert not len(empty.where(name="a")) and not len(empty["name"])
