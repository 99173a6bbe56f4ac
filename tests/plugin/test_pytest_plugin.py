"""The pytest face: sessions within this process, which start at once."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from rich.console import Console

from conftest import Said
from llama_workbench import ROOT
from llama_workbench.harness.plan.options import every_option
from llama_workbench.harness.plugin import progress
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.words import SessionExit
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import plain
from tests.runs import short_sessions
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]  # for sessions within this process

NAMES = tuple(option.name for option in every_option() if option.name != "strict")  # which pytest has
QUICK = ("--compare", "team006_before", "team006_after", "--workloads", "mask-create-apply-t32,mask-get-t128")


def pytest_process(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    # What pytest-xdist tells its workers is not for a pytest of its own: pytest-benchmark would switch itself off.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=cwd, capture_output=True, text=True, check=False, env=ours, timeout=300,
    )  # fmt: skip


@pytest.fixture(scope="module")
def quick(tmp_path_factory, warm):
    """One measured run with everything saved."""
    folder = tmp_path_factory.mktemp("quick")
    words = [
        "-p", "no:cacheprovider", "--benchmark", *QUICK, "--budget=60", f"--run-dir={folder / 'run'}",
        f"--benchmark-json={folder / 'out.json'}", f"--benchmark-storage=file://{folder / 'storage'}",
        "--benchmark-save=first",
    ]  # fmt: skip
    with redirect_stdout(io.StringIO()) as said, short_sessions(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
            patch.delenv(name)
        code = int(pytest.main(words))
    return folder, Said(code, said.getvalue(), "")


def test_it_measures_replays_and_judges(quick):
    folder, result = quick
    assert result.returncode == 0, result.stdout + result.stderr
    assert "test_variant[mask-create-apply-t32-team006_before]" in result.stdout
    assert "team006_before → team006_after" in result.stdout
    assert "Identical code: " in result.stdout
    assert "faster" in result.stdout
    (verdict,) = json.loads((folder / "run" / "verdicts.json").read_text())
    assert verdict["claim"] == "ad-hoc"
    # Open where the machine drifts under the processes (they depend on each other then); with the opposite word never.
    assert verdict["verdict"] in ("faster", "inconclusive")
    assert all(effect["ratio"] > 1 for effect in verdict["effects"] if effect["rounds"] >= 12)
    words = "workload variant baseline metric clock ratio low high rounds seconds verdict cause reason notes"
    keys = {*words.split()}
    for effect in verdict["effects"]:
        more = {"horizon", "early"} | ({"seconds_more"} if effect["verdict"] == "inconclusive" else set())
        assert set(effect) == keys | more


def test_the_replayed_times_are_the_measured_ones(quick):
    import pandas as pd

    folder, _ = quick
    samples = pd.read_parquet(folder / "run" / "samples.parquet")
    stored = json.loads((folder / "out.json").read_text())["benchmarks"]
    assert len(stored) == 4
    for benchmark in stored:
        facts = benchmark["extra_info"]
        mine = samples[(samples["workload"] == facts["workload"]) & (samples["variant"] == facts["variant"])]
        mine = mine[mine["cpu_ns"] > 0]  # a virtual machine's CPU clock may stand still for a sample
        seconds = mine["cpu_ns"] / mine["repeats"] / 1e9
        assert benchmark["stats"]["rounds"] == len(mine)
        assert benchmark["stats"]["median"] == pytest.approx(seconds.median())
        assert benchmark["group"] == facts["workload"]


def test_pytest_benchmarks_own_compare_reads_it_and_k_selects(quick, run_pytest):
    folder, _ = quick
    compared = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", f"--storage=file://{folder / 'storage'}", "compare"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "team006_after" in compared.stdout
    again = run_pytest(
        "--benchmark", *QUICK, "-k", "mask-get", "--budget=3", f"--run-dir={folder / 'again'}",
        f"--benchmark-storage=file://{folder / 'storage'}", "--benchmark-compare",
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert "(0001_first)" in again.stdout
    workloads = {e["workload"] for e in json.loads((folder / "again" / "verdicts.json").read_text())[0]["effects"]}
    assert workloads == {"mask-get-t128"}


def test_k_that_leaves_one_side_says_so(run_pytest, tmp_path):
    result = run_pytest("--benchmark", *QUICK, "-k", "team006_after", f"--run-dir={tmp_path / 'run'}")
    assert result.returncode == 5
    assert "select both variants" in result.stdout + result.stderr


@pytest.mark.whole
def test_claims_with_nothing_to_time_here_are_answered(run_pytest, tmp_path):
    result = run_pytest("--benchmark", "--claims=gpu-kernels", f"--run-dir={tmp_path / 'run'}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "not measurable here" in result.stdout
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    assert {verdict["reason"] for verdict in verdicts} == {
        "needs a CUDA device: run with --device cuda; this run measured on cpu"
    }


def test_benchmark_disable_passes_gates_only(run_pytest, tmp_path):
    """And claims on architecture have their traces then."""
    result = run_pytest(
        "--benchmark", "--claims=single-file-faster", "--workloads=prefill-tiny-t16", "--benchmark-disable",
        f"--run-dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "outputs were checked, and nothing was timed" in result.stdout
    [experiment] = json.loads((tmp_path / "run" / "run.json").read_text())["experiments"]
    assert experiment["gates"]["team005_hybrid"]["passed"]
    assert experiment["trace_differences"] == [
        {"baseline": "team005_hybrid", "variant": "team005_proposal", "same": True, "detail": "", "counts": []}
    ]
    assert experiment["traces"]["team005_hybrid"]["digest"] == experiment["traces"]["team005_proposal"]["digest"]
    assert not (tmp_path / "run" / "samples.parquet").exists()


def test_a_condition_decides_the_exit_code(run_pytest, tmp_path):
    """Masks as a micro-operation are several times as fast with a cache."""
    result = run_pytest(
        "--benchmark", "--compare", "team006_after", "team006_before", "--workloads=mask-create-apply-t32",
        "--fail-if=slower:5", "--fail-if=not-faster:1", "--fail-if=maybe-slower:900", f"--run-dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert "fails: --fail-if slower:5" in result.stdout
    assert "fails: --fail-if not-faster:1" in result.stdout
    assert "fails: --fail-if maybe-slower:900" not in result.stdout
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    assert [(each["claim"], each["part"], each["verdict"]) for each in verdicts] == [
        ("ad-hoc", None, "slower"),
        ("fail-if", "slower:5", "supported"),
        ("fail-if", "not-faster:1", "refuted"),
        ("fail-if", "maybe-slower:900", "refuted"),
    ]
    assert verdicts == plain(rejudge(RunFolder(tmp_path / "run")).verdicts), "judged again, it is the same"


def test_a_named_variant_that_fails_its_gate_is_a_failed_test(run_pytest, tmp_path):
    """And one that passes a passed one. Of variants that claims bring along, only the reason is told."""
    mine = tmp_path / "mine.py"
    mine.write_text("def bad(config, weights, *, max_length):\n    raise RuntimeError('no such kernel here')\n")
    words = ("--benchmark", "--benchmark-disable", f"--add-variant={mine}:bad", "--workloads=prefill-tiny-t16")
    result = run_pytest(*words, "--compare", "fast", "bad", f"--run-dir={tmp_path / 'run'}")
    assert result.returncode == SessionExit.WRONG, result.stdout
    assert "\nleft out: bad: raises RuntimeError: no such kernel here" in result.stdout
    assert "bad is left out of prefill-tiny-t16" in result.stdout and result.stdout.count("no such kernel") == 1
    assert "1 failed, 1 passed" in result.stdout


def test_collecting_measures_nothing(run_pytest, tmp_path):
    result = run_pytest("--benchmark", *QUICK, "--collect-only", "-q", f"--run-dir={tmp_path / 'run'}")
    assert result.returncode == 0
    assert "mask-get-t128-team006_after" in result.stdout
    assert not (tmp_path / "run").exists()


def test_plain_pytest_runs_no_benchmarks(run_pytest):
    result = run_pytest("--collect-only", "-q", "tests/plan/test_plan.py")
    assert result.returncode == 0
    assert "test_variant[" not in result.stdout


@pytest.mark.parametrize(
    ("theirs", "words", "code", "said"),
    [
        (NAMES, ["--seed", "3"], 0, "1 passed"),
        (NAMES, ["--workbench-benchmark", "--seed=3", "--workbench-workloads=none"], 4, "no workload 'none'"),
        (("seed", "claims"), ["--benchmark", "--seed", "3", "--workbench-claims", "none"], 4, "no claim 'none'"),
        (("seed",), ["--benchmark", "--budget", "."], 4, "argument --budget: invalid float value: '.'"),
        (("seed",), ["--budget", "3"], 4, "unrecognized arguments: --budget"),
    ],
)
def test_names_of_other_peoples_options_are_theirs(tmp_path, theirs, words, code, said):
    """A conftest.py of someone who has never heard of us, in a folder with a test."""
    (tmp_path / "conftest.py").write_text(
        f"def pytest_addoption(parser):\n    for name in {theirs!r}:\n        parser.addoption('--' + name)\n"
    )
    (tmp_path / "test_theirs.py").write_text(
        "def test_theirs(pytestconfig):\n    assert '3' in vars(pytestconfig.option).values()\n"
    )
    result = pytest_process(*words, cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert said in result.stdout + result.stderr


def test_a_folder_given_to_an_option_is_not_searched_for_tests(tmp_path):
    """Nor for a conftest.py, which may have an option that the command names."""
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--mine')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "conftest.py").write_text("raise ImportError('not asked for')\n")
    result = pytest_process("--benchmark", "--checkpoint", "elsewhere", "--mine=3", cwd=tmp_path)
    assert result.stderr.startswith("ERROR: elsewhere/config.json: cannot be read")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--compare", "fast", "fats"), "did you mean fast"),
        (("--variants", "team05_hybrid"), "did you mean team005_hybrid"),
        (("--workloads", "prefil-15m-t128"), "did you mean 'prefill-15m-t128'"),
        (("--claims", "single-file"), "single-file-faster"),
        (("--add-variant", "mine.py"), "FILE:FUNCTION"),
        (("--add-variant", "tests/outside_variants.py:biuld"), "no function 'biuld'"),
        (("--fail-if", "slower:5"), "only with --compare"),
        (("--budget", "-3"), "--budget -3"),
        (("--budgt", "3"), "--budgt: no such option; did you mean --budget?"),
        (("--compare", "fast", "gpt_fast", "fats"), "did you mean fast"),
        (("--compare", "fast", "gpt_fast", "fast"), "both sides are the same"),
        (("--threads", "999"), "--threads 999"),
        (
            ("--checkpoint", "no/such/folder"),
            "no/such/folder/config.json: cannot be read (No such file or directory); name a folder with config.json",
        ),
        (("--claims-dir", "no/such/folder"), "no/such/folder"),
    ],
)
def test_a_mistake_is_one_clear_line(run_pytest, words, said, tmp_path):
    result = run_pytest("--benchmark", *words, f"--run-dir={tmp_path / 'run'}")
    assert result.returncode == 4
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_malformed_claim_names_file_and_key(run_pytest, tmp_path):
    (tmp_path / "mine.toml").write_text('id = "mine"\ntitel = "x"\n')
    result = run_pytest("--benchmark", f"--claims-dir={tmp_path}")
    assert result.returncode == 4
    assert "mine.toml" in result.stderr
    assert "did you mean 'title'" in result.stderr


def test_a_session_in_a_program_that_goes_on_leaves_its_garbage_alone(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "def f(n):\n    return n\n\ndef g(n):\n    return n\n\ndef made(seed):\n    return seed\n"
    )
    program = """
import gc, sys, pytest
calls = []
gc.freeze = lambda: calls.append(len(sys.argv))
words = ["--benchmark", "--collect-only", "-q", "--compare", "two.py:f", "two.py:g", "--call", "two.py:made"]
assert pytest.main(words) == 0
sys.argv[1:] = words
assert pytest.main() == 0
assert calls.count(1 + len(words)) == calls.count(1) + 1, calls  # the conftest of a checkout calls it in both
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "shares", "lefts"),
    [
        ([(0.2, 10.0), (0.7, 10.0), (0.6, 10.0), (0.9, 10.0)], ["20", "70", "70", "90"], ["10 s"] * 4),
        ([(1.0, 300.0), (0.97, 20.0), (1.0, 0.0)], ["99", "99", "100"], ["5 min", "20 s", "0 s"]),
        ([(0.98, 21.0), (0.99, 120.0)], ["98", "99"], ["21 s", "21 s"]),  # what is nearly settled goes on
    ],
)
def test_lines_of_progress_never_run_backwards_nor_end_while_seconds_are_left(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[float, float]], shares: list[str], lefts: list[str]
) -> None:
    monkeypatch.setattr(progress, "REPORT_SECONDS", 0.0)
    lines = progress.LineProgress(Console(file=(text := io.StringIO()), width=200))
    for phase in ("rounds", "counts"):
        lines.phase(phase)
        for done, left in steps:
            lines.step("a workload", done, left)
    assert re.findall(r"(\d+) %", text.getvalue()) == shares * 2
    assert re.findall(r"(\d+ \w+) left", text.getvalue()) == lefts * 2


def test_a_bar_never_runs_backwards_within_a_phase() -> None:
    bar = progress.LiveProgress(Console(file=io.StringIO(), force_terminal=True))
    try:
        seen = []
        for phase in ("rounds", "counts"):
            bar.phase(phase)
            for done in (0.2, 0.7, 0.6):
                bar.step("a workload", done, 10.0)
                seen.append(bar._progress.tasks[0].completed)
        assert seen == [0.2, 0.7, 0.7] * 2
    finally:
        bar.close()
