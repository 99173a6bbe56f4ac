"""A run that goes on: real measuring processes on the tiny geometry, and every reason for which it may not."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.commands.app import main
from llama_workbench.dashboard.export import evidence
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.harness.judge.stopping import StoppingRule
from llama_workbench.harness.machine.lifeline import Lock
from llama_workbench.harness.measure import measurement as measure
from llama_workbench.harness.measure.gating import Gates
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.report.outcome import further
from llama_workbench.harness.session import run as session
from llama_workbench.harness.session.run import go_on
from llama_workbench.harness.session.unfinished import _here
from llama_workbench.harness.spec.regions import Condition
from llama_workbench.harness.store import files
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from tests import runs
from tests.measure.test_measure import FixedRounds
from tests.runs import Quiet
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers("dashboard", *SESSIONS), pytest.mark.usefixtures("warm")]

MODEL, PART = "decode-tiny-c16", "rope-t8"
SIDES = ("team006_before", "team006_after")
"""Both have the same RoPE."""

OUTSIDE = ROOT / "tests" / "outside_variants.py"


def fixed(rounds: int) -> Any:
    """Measuring of so many rounds of a workload, which remembers what its rule knew at first."""
    real, knew = measure.Schedule.run, Counter[str]()

    def run(self: measure.Schedule, rule: StoppingRule, keep: Any, *, seconds: float) -> None:
        knew.update({f"{pair.variant} {pair.baseline}": len(values) for pair, values in rule.series.items()})
        real(self, FixedRounds(rule, rounds), keep, seconds=seconds)

    return run, knew


def measured(run: session.Run, rounds: int) -> tuple[session.Result, Counter[str]]:
    do, knew = fixed(rounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure.Schedule, "run", do)
        return run.measure(), knew


def goes_on(folder: Path, rounds: int, **given: Any) -> tuple[session.Result, Counter[str], list[str]]:
    earlier, options = go_on(RunFolder(folder), Options(**given), budget=600.0)
    told = Quiet()
    result, knew = measured(session.Run(earlier.plan, options, told, earlier), rounds)
    return result, knew, told.notes


def begun(folder: Path, workload: str, rounds: int) -> Path:
    """A run that ended with an open verdict."""
    options = Options(run_dir=folder / "run", seed=3, budget_seconds=600.0)
    plan = session.plan_run(
        Request(compare=SIDES, workloads=(workload,), fail_if=(Condition.parse("slower:40"),)), options
    )
    result, knew = measured(session.Run(plan, options, Quiet()), rounds)
    assert result.verdicts[0].verdict == "inconclusive" and not any(knew.values())
    return result.folder.path


@pytest.fixture(scope="module")
def of_a_part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("part"), PART, 4)


@pytest.fixture(scope="module")
def of_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return begun(tmp_path_factory.mktemp("models"), MODEL, 2)


@pytest.fixture
def copy(of_a_part: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_a_part, tmp_path / "run"))


@pytest.fixture
def copy_of_models(of_models: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(of_models, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def killed(folder: Path) -> None:
    """As if it had been killed: rounds in a journal whose last line is cut off, and no seal."""
    run = RunFolder(folder)
    rounds = list(run.rounds())
    for name in (files.SAMPLES, files.VERDICTS, files.STANDINGS):
        (folder / name).unlink()
    edit(folder, status="running", finished=None)
    for each in rounds:
        run.append_round(each)
    with (folder / files.JOURNAL).open("ab") as journal:
        journal.write(b'{"workload":"half a li')


def edit(folder: Path, **changes: Any) -> None:
    """Other values in run.json, as in one that is not sealed."""
    manifest = json.loads((folder / files.MANIFEST).read_text())
    rest = {key: value for key, value in manifest.items() if key not in ("sealed", "noise")}
    RunFolder(folder).write_json(files.MANIFEST, rest | changes)


# -- a run goes on -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [None, killed], ids=["judged", "killed"])
def test_old_and_new_rounds_are_one_series(copy: Path, end: Callable[[Path], None] | None) -> None:
    if end:
        end(copy)
    before, started = list(RunFolder(copy).rounds()), RunFolder(copy).read_manifest()["started"]
    result, knew, _ = goes_on(copy, 3)
    assert knew[" ".join(SIDES[::-1])] >= 3  # the rule begins with what was measured
    rounds = list(result.folder.rounds())
    assert rounds[: len(before)] == before and len(rounds) == len(before) + 3
    assert len({(each.process, each.number) for each in rounds}) == len(rounds)
    assert min(each.number for each in rounds[len(before) :]) > max(each.number for each in before)
    assert min(each.process for each in rounds[len(before) :]) > max(each.process for each in before)
    manifest = result.folder.read_manifest()
    [experiment] = manifest["experiments"]
    assert (manifest["started"], manifest["status"], experiment["rounds"]) == (started, "complete", len(rounds))
    assert len(manifest["sittings"]) == 2 and manifest["budget_seconds"] == 1200.0 and manifest["seed"] == 3
    assert result.folder.changed() == [] and not (copy / files.JOURNAL).exists()
    effect = result.verdicts[0].effects[0]
    both = {each.process for each in rounds if set(SIDES) <= {sample.variant for sample in each.samples}}
    assert effect.rounds == len(both)


def test_it_can_go_on_twice_and_after_a_kill_in_between(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(list(RunFolder(copy).rounds()))
    verdict_before, *_ = json.loads((copy / files.VERDICTS).read_text())
    earlier, options = go_on(RunFolder(copy), Options(), budget=600.0)
    run = session.Run(earlier.plan, options, Quiet(), earlier)

    def die(status: str) -> session.Result:
        raise SystemExit(9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_finish", die)
        with pytest.raises(SystemExit):
            measured(run, 2)
    assert {files.SAMPLES, files.JOURNAL} < {path.name for path in copy.iterdir()}
    verdict, *_ = json.loads((copy / files.VERDICTS).read_text())
    rounds = verdict["effects"][0]["rounds"]
    assert rounds > verdict_before["effects"][0]["rounds"], "those of the rounds before are no longer its verdicts"
    with pytest.raises(SystemExit, match="0"):
        main(["judge", str(copy), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["effects"][0]["rounds"] == rounds >= 3
    result, _, _ = goes_on(copy, 2)
    assert sum(result.folder.finished_rounds().values()) == before + 2 + 2
    assert len(result.folder.read_manifest()["sittings"]) == 3


def test_each_pair_is_measured_as_before(copy_of_models: Path) -> None:
    copy = copy_of_models
    pair = {"variant": SIDES[1], "baseline": SIDES[0], "metric": "time"}
    experiments = RunFolder(copy).read_manifest()["experiments"]
    experiments[0]["apart"] = [pair | {"blocks": True}]  # calls of the tiny model are too short for that
    edit(copy, experiments=experiments)
    before = len(list(RunFolder(copy).rounds()))
    result, _, _ = goes_on(copy, 3)
    fresh = list(result.folder.rounds())[before:]
    alone = [each for each in fresh if {sample.variant for sample in each.samples} >= set(SIDES)]
    assert alone and all(Counter(sample.variant for sample in each.samples).most_common(1)[0][1] == 1 for each in alone)


def test_what_was_left_out_stays_out(copy: Path) -> None:
    edit(copy, excluded=[{"variant": SIDES[1], "reason": "answers of timed calls were wrong"}])
    before = len(list(RunFolder(copy).rounds()))
    result, _, _ = goes_on(copy, 2)
    assert result.verdicts[0].verdict == "not evidence"
    fresh = list(result.folder.rounds())[before:]
    assert not any(sample.variant == SIDES[1] for each in fresh for sample in each.samples)


def test_before_its_gates_are_passed_an_interrupt_changes_nothing(copy: Path) -> None:
    before = content(copy)
    earlier, options = go_on(RunFolder(copy), Options(), budget=600.0)
    run = session.Run(earlier.plan, options, told := Quiet(), earlier)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gates, "pass_gates", interrupted)
        result = run.measure()
    assert result.interrupted and not result.verdicts and "the earlier run is unchanged" in told.notes
    assert content(copy) == before


def test_weights_that_changed_are_refused_when_they_are_read(copy_of_models: Path) -> None:
    copy = copy_of_models
    checkpoints = RunFolder(copy).read_manifest()["checkpoints"]
    edit(copy, checkpoints={name: facts | {"digest": "0" * 64} for name, facts in checkpoints.items()})
    before = content(copy)
    with pytest.raises(RunError, match=r"weights of tiny: SHA-256 000000000000 against"):
        goes_on(copy, 1)
    assert content(copy) == before


# -- and may not -------------------------------------------------------------------------------------------------------


def environment(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        edit(folder, environment=RunFolder(folder).read_manifest()["environment"] | changes)

    return change


def other_code(folder: Path) -> None:
    sources = RunFolder(folder).read_manifest()["sources"]
    sources["variants"][SIDES[0]]["digest"] = "0" * 64
    edit(folder, sources=sources)


def other_harness(folder: Path) -> None:
    edit(folder, sources=RunFolder(folder).read_manifest()["sources"] | {"harness": "0" * 64})


def other_plan(folder: Path) -> None:
    experiments = RunFolder(folder).read_manifest()["experiments"]
    experiments[0]["baseline"] = SIDES[1]
    edit(folder, experiments=experiments)


def lost_rounds(folder: Path) -> None:
    experiments = RunFolder(folder).read_manifest()["experiments"]
    experiments[0]["rounds"] += 1
    edit(folder, experiments=experiments)


def damaged(folder: Path) -> None:
    path = folder / files.SAMPLES
    path.write_bytes(path.read_bytes()[:-1] + b"?")


REASONS: dict[str, tuple[Callable[[Path], None], str]] = {
    "processor": (environment(cpu_model="Another CPU"), "CPU: Another CPU against .*start a new run"),
    "cores": (environment(cores=999), "cores: 999 against"),
    "torch": (environment(torch="0.1"), "torch: 0.1 against"),
    "library": (environment(packages={"safetensors": "0.1"}), "safetensors: 0.1 against .*numpy|numpy.*safetensors"),
    "code": (other_code, f"the code of {SIDES[0]} changed"),
    "harness": (other_harness, "the code that measures changed"),
    "plan": (other_plan, "would measure something else"),
    "rounds": (lost_rounds, f"rounds of {PART}, and run.json counted"),
    "damage": (damaged, "samples.parquet: its content is not what the run wrote"),
    "gates": (lambda folder: edit(folder, mode="gates"), "checked outputs only and has no timings"),
    "start": (lambda folder: edit(folder, experiments=[]), "before its first output check"),
    "older": (lambda folder: edit(folder, sources=None), "which code it measured"),
    "seed": (lambda folder: edit(folder, seed="many"), "seed"),
}


@pytest.mark.parametrize(("change", "said"), REASONS.values(), ids=list(REASONS))
def test_a_run_that_is_not_as_it_was_is_refused_and_stays(
    copy: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None], said: str
) -> None:
    change(copy)
    before = content(copy)
    with pytest.raises(RunError, match=said):
        go_on(RunFolder(copy), Options(), budget=1.0)
    assert content(copy) == before


def test_all_that_changed_is_named_at_once(copy: Path) -> None:
    environment(cores=999, torch="0.1")(copy)
    with pytest.raises(RunError, match=r"torch: 0\.1 .*cores: 999"):
        go_on(RunFolder(copy), Options(), budget=1.0)


def test_a_folder_in_use_is_refused(copy: Path) -> None:
    lock = Lock()
    lock.take(copy)
    with pytest.raises(RunError, match=r"another run, process .* is writing .*kill"):
        go_on(RunFolder(copy), Options(), budget=1.0)
    lock.close()
    earlier, options = go_on(RunFolder(copy), Options(), budget=1.0)
    edit(copy, status="interrupted")  # another process has gone on and ended between the two
    with pytest.raises(RunError, match="another command resumed this run meanwhile"):
        session.Run(earlier.plan, options, Quiet(), earlier)
    Lock().take(copy)


@pytest.mark.whole
def test_the_text_of_its_claims_must_stand(tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    claims.mkdir()
    text = (ROOT / "claims" / "rope-3x-5x.toml").read_text()
    (claims / "rope-3x-5x.toml").write_text(text)
    options = Options(run_dir=tmp_path / "run", claims_folder=claims)
    plan = session.plan_run(Request(claims=("rope-3x-5x",), workloads=("rope-t8",)), options)
    run = session.Run(plan, options, Quiet())
    measured(run, 2)
    earlier, _ = go_on(run.folder, options, budget=1.0)
    assert earlier.plan == plan, "cut down to what was selected, as it was"
    (claims / "rope-3x-5x.toml").write_text(text.replace("[3, 5]", "[1.1, 9]").replace("[3.0, 5.0]", "[1.1, 9]"))
    with pytest.raises(RunError, match=r"claim rope-3x-5x: part .* changed"):
        go_on(run.folder, options, budget=1.0)


def test_functions_are_found_where_they_still_are_and_commands_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def f(x): ...\n")
    options = ["--compare", "mine.py:f", "other=mine.py:f", "--call", "mine.py:f"]
    assert _here(options) == Request()
    monkeypatch.chdir(tmp_path)
    found = _here(options)
    assert found.compare and [side.name for side in found.compare] == ["f", "other"] and len(found.calls) == 1
    assert _here(["--compare", "cmd:true", "other=cmd:true", "--call", "mine.py:f"]) == Request()


def test_variants_from_files_are_given_again_and_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    (tmp_path / "helper.py").write_text("factor = 1\n")
    file.write_text("import helper\n" + OUTSIDE.read_text())
    options = Options(run_dir=tmp_path / "run")
    text = f"{file}:good"
    plan = session.plan_run(Request(compare=("fast", "good"), added=(text,), workloads=("decode-tiny-c16",)), options)
    run = session.Run(plan, options, Quiet())
    measured(run, 3)
    written = (run.folder.path / files.MANIFEST).read_text()
    assert '"file": "mine.py"' in written and str(tmp_path) not in written
    with pytest.raises(RunError, match=r"Pass them again: --add-variant mine.py:good"):
        go_on(run.folder, Options(), budget=1.0)
    assert go_on(run.folder, Options(), Request(added=(text,)), budget=1.0)[0].plan == plan
    with pytest.raises(PlanError, match="has no such variant"):
        go_on(run.folder, Options(), Request(added=(text, f"{file}:slow")), budget=1.0)
    with monkeypatch.context() as patch:  # where its code is still there nothing is typed again
        patch.chdir(tmp_path)
        assert [*go_on(run.folder, Options(), budget=1.0)[0].plan.added] == ["good"]
    (tmp_path / "helper.py").write_text("factor = 2\n")
    with pytest.raises(RunError, match="the code of good changed"):
        go_on(run.folder, Options(), Request(added=(text,)), budget=1.0)


def test_workloads_of_ones_own_are_measured_and_kept_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = '[[workload]]\nname = "rope-mine-t{tokens}"\nkind = "component"\ncomponent = "rope"\n'
    file.write_text(text + 'geometry = "7b-1layer"\ntokens = [3, 4]\ndescription = "RoPE of {tokens} tokens"\n')
    options = Options(run_dir=tmp_path / "run")
    whole = session.plan_run(Request(compare=SIDES, workloads_file=file), options)
    assert [each.workload.name for each in whole.experiments] == ["rope-mine-t3", "rope-mine-t4"]
    claimed = Request(claims=("rope-3x-5x",), workloads=("rope-mine-t3",), workloads_file=file)
    with pytest.raises(PlanError, match="nothing to measure"):
        session.plan_run(claimed, options)
    plan = session.plan_run(Request(compare=SIDES, workloads=("rope-mine-t4",), workloads_file=file), options)
    run = session.Run(plan, options, Quiet())
    measured(run, 2)
    file.unlink()
    result, knew, _ = goes_on(run.folder.path, 1)
    assert result.folder.finished_rounds() == {"rope-mine-t4": 3} and max(knew.values()) >= 1


# -- its two faces -----------------------------------------------------------------------------------------------------


def test_pytest_goes_on_and_says_so(copy: Path, run_pytest: Callable[..., Any]) -> None:
    before = len(list(RunFolder(copy).rounds()))
    said = run_pytest("--benchmark", f"--continue={copy}", "--budget=1")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "going on with run" in said.stdout and f"test_variant[{PART}-{SIDES[0]}]" in said.stdout
    assert sum(RunFolder(copy).finished_rounds().values()) > before


@pytest.mark.parametrize("words", [("--workloads=x",), ("--seed=4", "--all"), ("-k", "fast"), ("--benchmark-disable",)])
def test_what_would_change_the_plan_is_refused(copy: Path, run_pytest: Callable[..., Any], words: tuple[str]) -> None:
    said = run_pytest("--benchmark", f"--continue={copy}", *words)
    assert said.returncode == 4 and "the run keeps its own plan; leave out" in said.stderr
    assert all(word.partition("=")[0] in said.stderr for word in words if word.startswith("-"))


def test_the_command_goes_on(copy: Path, run_pytest: Callable[..., Any]) -> None:
    edit(copy, fail_if=["not-faster:400"])
    said = run_pytest("--benchmark", f"--continue={copy}", "--budget=1")
    assert said.returncode == 1, said.stderr
    assert f"{SIDES[0]} → {SIDES[1]}" in said.stdout.replace("->", "→")
    assert "fails: --fail-if not-faster:400" in said.stdout
    environment(cores=999)(copy)
    said = run_pytest("--benchmark", f"--continue={copy}")
    assert said.returncode == 4 and "cores: 999" in said.stderr


# -- what more time would do -------------------------------------------------------------------------------------------

GOES_ON = {
    "sittings": [{"started": "2026-01-02T03:04:05+00:00", "budget_seconds": 60.0}],
    "sources": {"harness": "0" * 64, "variants": {"team006_before": {"digest": "1" * 64}}},
}


@pytest.mark.parametrize(
    ("manifest", "more"),
    [
        (GOES_ON, ""),
        (GOES_ON | {"sources": {"harness": "", "variants": {"mine": {"digest": "", "file": "my file.py"}}}},
         " --add-variant 'my file.py:mine'  # my file.py: its place today"),
        (GOES_ON | {"checkpoints": {"own": {"synthetic": False}}},
         " --checkpoint PATH  # PATH: its place today"),
        ({}, None),
    ],
    ids=["ours", "from a file", "on a checkpoint", "older run"],
)  # fmt: skip
def test_what_more_time_would_settle_is_followed_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, manifest: Any, more: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    compared = ("team006_before", "team006_after")
    run = runs.write_run(
        "run", only=("prefill-15m-t128",), compare=compared, rounds=20, noise=0.1,
        factors={"prefill-15m-t128/team006_after": 1.15}, manifest=manifest,
    )  # fmt: skip
    assert run.read(files.VERDICTS)[0].effects[0].seconds_more > 0
    with pytest.raises(SystemExit, match="0"):
        main(["judge", "run"])
    said = capsys.readouterr().out
    opened = data.read_run(run.path)
    command = outcomes.go_on(opened, opened.claims[0])
    assert (command in said if command else "--continue" not in said) and bool(command) == (more is not None)
    if more is not None:
        found = re.fullmatch(r"pytest --benchmark --continue run --budget (\d+)(.*)", command)
        assert found and found[2] == more
        assert int(found[1]) >= (opened.claims[0].effects[0].seconds_more or 0) > 0
        assert command in evidence.evidence_html(opened, opened.claims[0]).replace("&#39;", "'")


def test_who_was_told_where_a_checkpoint_and_claims_lie_says_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compared = ("team006_before", "team006_after")
    manifest: dict[str, Any] = GOES_ON | {"checkpoints": {"own": {"synthetic": False}}}
    run = runs.write_run(
        "run", only=("prefill-15m-t128",), compare=compared, rounds=20, noise=0.1,
        factors={"prefill-15m-t128/team006_after": 1.15}, manifest=manifest,
    )  # fmt: skip
    options = Options(checkpoint=tmp_path / "models" / "own", claims_folder=Path("my claims"))
    for folder in options.places.values():
        folder.mkdir(parents=True)
    command = further(run.path, data.read_run(run.path).claims, run.manifest(), options)
    assert command.endswith(" --checkpoint models/own --claims-dir 'my claims'"), command


def test_a_settled_comparison_needs_no_more_time(tmp_path: Path) -> None:
    compared = ("team006_before", "team006_after")
    run = runs.write_run(tmp_path / "run", only=("prefill-15m-t128",), compare=compared, manifest=GOES_ON)
    opened = data.read_run(run.path)
    assert opened.claims[0].verdict == "faster" and not outcomes.go_on(opened, opened.claims[0])
