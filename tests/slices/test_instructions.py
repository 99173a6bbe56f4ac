"""Instructions: what callgrind wrote is read, counts are judged, and the pass runs, once for real."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.baselines.text import MARKER
from llama_workbench.harness.calls import source
from llama_workbench.harness.calls.called import Call
from llama_workbench.harness.claims.model import Claim, ClaimError
from llama_workbench.harness.claims.reading import check_claim, load_claims
from llama_workbench.harness.evidence.evidence import evidence_from_manifest
from llama_workbench.harness.judge.parts import judge_claims
from llama_workbench.harness.measure.measurement import Measurement
from llama_workbench.harness.metrics.base import PassContext
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Request
from llama_workbench.harness.report.text import run_notes
from llama_workbench.harness.slices.instructions import counting, metric
from llama_workbench.harness.slices.instructions.counter import toggle_of_valgrind
from llama_workbench.harness.slices.instructions.counting import (
    ALLOCATORS,
    BINDING,
    DISPATCH,
    KERNELS,
    LIBC,
    NOT_INSTALLED,
    OTHERS,
    PYTHON,
    CallgrindError,
    Wanted,
    cannot_count,
    count,
    group_of,
    parse,
    read,
)
from llama_workbench.harness.slices.instructions.metric import METRIC, everything, run_instructions
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.tables import COLUMNS, no_rows
from llama_workbench.harness.store.verdict_schema import Verdict
from llama_workbench.variants import FUNCTION_REFERENCE
from tests.action import PullRequest, Scratch
from tests.runs import Quiet, measurement_of

OUTSIDE = ROOT / "tests" / "outside_variants.py"
PREFILL = "prefill-tiny-t16"

FUNCTIONS = """\
import random

def words(seed):
    return [f"{random.random():.9f}" for _ in range(60)]

def sorts(words):
    return sorted(words)

def sorts_twice(words):
    return sorted(sorted(words, reverse=True))

def drops_one(words):
    return sorted(words)[1:]
"""

# -- the file --------------------------------------------------------------------------------------------------------

DUMP = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir
summary: 1400


ob=(1) /usr/lib/libpython3.11.so.1.0
fl=(1) ceval.c
fn=(1) _PyEval_EvalFrameDefault
10 100
+2 50
* 7
cob=(2) /lib/torch/lib/libtorch_cpu.so
cfi=(2) ???
cfn=(2) mkl_blas_avx2_sgemm_kernel_nocopy_TN_b1
calls=3 0
-1 1000
+1 43

ob=(2)
fl=(2)
fn=(2)
0 1000
fn=(3) at::TensorIteratorBase::build(at::TensorIteratorConfig&)
0 150

ob=(3) /usr/lib/x86_64-linux-gnu/libc.so.6
fn=(4) malloc
jcnd=1/2 5
12
5 30
fi=(9) inlined.h
6 20

totals: 1400
"""


def test_a_dump_is_read_with_costs_where_they_were_spent() -> None:
    """What a function caused in another, and lines about jumps, are no costs of its own."""
    assert parse(DUMP.splitlines()) == {PYTHON: 200, DISPATCH: 150, KERNELS: 1000, LIBC: 50}


def test_several_events_and_positions_have_columns() -> None:
    text = "positions: instr line\nevents: Bc Ir\nfn=main\n0x10 3 5 70\n+4 * 1 30\n+4 +1 1\ntotals: 7 100\n"
    assert parse(text.splitlines()) == {OTHERS: 100}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("totals: 1400\n", "", "cut off"),
        ("events: Ir", "events: Dr", "does not count Ir"),
        ("+2 50", "+2 51", "add up to 1401, not 1400"),
        ("+2 50", "+2 fifty", "'fifty' where a count should stand"),
    ],
)
def test_a_dump_that_is_damaged_or_not_there_says_so(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(CallgrindError, match=said):
        parse(DUMP.replace(old, new).splitlines())
    with pytest.raises(CallgrindError, match=r"left no out\.17 \(No such file"):
        read(tmp_path / "out.17")


@pytest.mark.parametrize(
    ("file", "function", "group"),
    [
        ("/usr/bin/python3.11", "main", PYTHON),
        ("libtorch_python.so", "THPVariable_matmul", BINDING),
        ("libc10.so", "c10::TensorImpl::TensorImpl()", DISPATCH),
        ("libtorch_cpu.so", "at::_ops::mm::call(at::Tensor const&)", DISPATCH),
        ("libtorch_cpu.so", "Sleef_expf8_u10avx2", KERNELS),
        ("libtorch_cpu.so", "at::native::AVX2::VectorizedLoop2d", KERNELS),
        ("/lib/ld-linux-x86-64.so.2", "__tls_get_addr", LIBC),
        ("libm.so.6", "expf", LIBC),
        ("libc.so.6", "malloc", LIBC),
        ("libc.so.6", "_int_malloc", ALLOCATORS),
        ("libc.so.6", "unlink_chunk.constprop.0", ALLOCATORS),
        ("libpython3.11.so.1.0", "_PyObject_Free", ALLOCATORS),
        ("libmine.so", "_int_malloc", OTHERS),
        ("libcrypto.so.3", "sha256_block", OTHERS),
        ("???", "0x0000", OTHERS),
    ],
)
def test_whose_code_it_is(file: str, function: str, group: str) -> None:
    assert group_of(file, function) == group


# -- the verdict -----------------------------------------------------------------------------------------------------

VERSIONS = {"torch": "2.13.0", "python": "3.11.7", "valgrind": "3.19.0"}


def a_record(variant: str, instructions: float | None, **changed: Any) -> dict[str, Any]:
    by = {} if instructions is None else {KERNELS: 800e6, PYTHON: instructions - 800e6}
    record = {"workload": "w", "variant": variant, "instructions": instructions, "calls": 2, "again": None, "by": by}
    return record | {"reason": None, "capability": "AVX2", "versions": VERSIONS} | changed


def a_claim(**hypothesis: Any) -> Claim:
    base = {"id": "c", "title": "t", "who": ["T"], "source": [{"document": "d", "section": "s"}], "statement": "s"}
    part = {"metric": "instructions", "variant": "new", "baseline": "old", "workloads": ["w"]} | hypothesis
    return check_claim(base | {"assumes": [], "decided_by": "d", "hypothesis": [part]}, "c.toml")


def judged(folder: Path, *records: dict[str, Any], excluded: str = "", **hypothesis: Any) -> Verdict:
    """The verdict on what lies in a run folder, read back as a run reads it."""
    run = RunFolder(folder)
    run.write_json("instructions.json", records)
    fallen = [{"variant": excluded, "reason": "it fell out"}] if excluded else []
    manifest = {"experiments": [{"workload": {"name": "w"}, "variants": ["new", "old"], "excluded": fallen}]}
    evidence = evidence_from_manifest(
        manifest_of(manifest), no_rows(COLUMNS), passes={"instructions": METRIC.read(run)}
    )
    [verdict] = judge_claims([a_claim(**hypothesis)], evidence)
    return verdict


@pytest.mark.parametrize(
    ("expectation", "word"),
    [
        ({"above": 1}, "supported"),
        ({"above": 5.01}, "inconclusive"),
        ({"range": [100, 200]}, "refuted"),
        ({"range": [4, 6]}, "supported"),
        ({"at_most": 5.03}, "supported"),
        ({"range": [-1, 1]}, "refuted"),
    ],
)
def test_counts_are_judged(tmp_path: Path, expectation: dict[str, Any], word: str) -> None:
    """The old side does 5 % more; both counts of it are the same, so that the interval is the least there is."""
    verdict = judged(tmp_path, a_record("new", 1000e6), a_record("old", 1050e6, again=1050e6), **expectation)
    assert verdict.verdict == word
    [effect] = verdict.effects
    assert (effect.ratio, effect.low, effect.high) == pytest.approx((5.0, 4.98, 5.02))
    assert (effect.unit, effect.rounds, effect.baseline) == ("%", 2, "old")
    assert f"most of the difference lies in {PYTHON} (+50,000,000 of the baseline)" in effect.said[-1]


def test_a_count_has_no_alpha_and_no_mark_and_reports_say_so(tmp_path: Path) -> None:
    """Its interval is a bound from experience; two such verdicts beside each other do not hold "together"."""
    verdict = judged(tmp_path, a_record("new", 1000e6), a_record("old", 1050e6, again=1050e6), above=1)
    assert math.isnan(verdict.alpha) and not verdict.together
    counted = {"instructions": METRIC.read(RunFolder(tmp_path))}
    evidence = evidence_from_manifest(manifest_of({"experiments": []}), no_rows(COLUMNS), passes=counted)
    both = judge_claims([a_claim(above=1), a_claim(above=2)], evidence)
    assert all(each.verdict == "supported" and math.isnan(each.alpha) and not each.together for each in both)
    alone = " ".join(run_notes(both, manifest_of({"alpha": 0.01})))
    assert "bounds from experience, with no known probability" in alone and "A ratio is" not in alone
    timed = replace(both[0], alpha=0.01)
    beside = " ".join(run_notes([*both, timed], manifest_of({"alpha": 0.01})))
    assert "This does not hold for the 2 that rest on counts:" in beside


def test_counts_that_do_not_repeat_and_small_calls_widen_the_interval(tmp_path: Path) -> None:
    """The second count of any variant says how well counts repeat; where memory lies changes a count by so many
    instructions, however short the call is."""
    records = a_record("new", 1000e6), a_record("old", 1050e6), a_record("third", 2000e6, again=2100e6)
    verdict = judged(tmp_path, *records, above=1)
    assert (verdict.effects[0].low, verdict.effects[0].high) == pytest.approx((0.0, 10.0))
    assert verdict.verdict == "inconclusive"
    new = a_record("new", 1e7, by={})
    verdict = judged(tmp_path, new, a_record("old", 1.02e7, again=1.02e7, by={}), above=1.6)
    assert (verdict.effects[0].low, verdict.effects[0].high) == pytest.approx((1.0, 3.0))
    assert verdict.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"capability": "AVX512"}, "torch computes with AVX512 for new, AVX2 for old"),
        ({"versions": VERSIONS | {"torch": "2.12.0"}}, "torch 2.12.0 for new, 2.13.0 for old"),
        ({"versions": VERSIONS | {"valgrind": "3.22.0"}}, "valgrind 3.22.0 for new, 3.19.0 for old"),
        ({"instructions": None, "calls": 0, "reason": NOT_INSTALLED}, NOT_INSTALLED),
        ({"instructions": None, "calls": 0, "reason": "hangs"}, "new: hangs"),
        ({"variant": "another"}, "this run has not counted new"),
    ],
)
def test_what_cannot_be_compared_says_why(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    old = a_record("old", 1050e6, again=1050e6)
    verdict = judged(tmp_path, a_record("new", 1000e6) | changed, old, above=1)
    assert verdict.verdict == "not measurable here" and said in verdict.reason


def test_what_was_counted_once_or_never_is_no_evidence(tmp_path: Path) -> None:
    once = judged(tmp_path, a_record("new", 1000e6), a_record("old", 1050e6), above=1)
    assert once.verdict == "not measurable here" and "no variant was counted twice" in once.reason
    assert "has not counted instructions" in judged(tmp_path, above=1).reason
    both = a_record("new", 1000e6), a_record("old", 1050e6, again=1050e6)
    fallen = judged(tmp_path, *both, excluded="old", above=1)
    assert fallen.verdict == "not evidence" and "old: it fell out" in fallen.reason
    with pytest.raises(RunError, match="has the workload, variant of an earlier one"):
        judged(tmp_path, a_record("new", 1000e6), a_record("new", 1050e6), above=1)


def test_how_it_is_written_and_planned() -> None:
    claim = a_claim(variant="fast", baseline="team006_before", workloads=[PREFILL], range=[-1, 1])
    assert Claim.model_validate(claim.stored()) == claim
    [hypothesis] = claim.hypothesis
    assert hypothesis.describe() == "the same work within ±1 %"
    assert a_claim(above=1).hypothesis[0].describe() == "above 1 % more work in the baseline"
    [experiment] = make_plan(Request(), [claim]).experiments
    assert (experiment.variants, experiment.targets, experiment.controls) == (("fast", "team006_before"), (), ())
    assert "--device cpu" in hypothesis.elsewhere("cuda")
    with pytest.raises(ClaimError, match="expected exactly one of range, above, at_most"):
        a_claim(above=1, at_most=2)


def test_the_headline_claims_are_counted_too() -> None:
    """On the sides that are timed; in a quick run on one short workload, for a count of a long one takes minutes."""
    for claim in load_claims(ROOT / "claims"):
        timed = {(one.variant, name) for one in claim.comparisons() for name in (one.baseline,)}
        counted = [part for part in claim.hypothesis if part.metric == "instructions"]
        assert [part.part for part in counted if part.quick] == ["work"] * claim.headline, claim.id
        for part in counted:
            assert part.part in ("work", "work, token by token") and part.variant_names() in timed, claim.id


# -- the pass --------------------------------------------------------------------------------------------------------


def a_context(tmp_path: Path, *names: str, workload: str = PREFILL) -> PassContext:
    """What the pass works with, of a run whose gates were not made."""
    request = Request(compare=("team006_before", "fast"), workloads=(workload,))
    plan = make_plan(request, [])
    measurement = measurement_of(plan, tmp_path, folders={"tiny": tmp_path, "15m": tmp_path})
    return PassContext(measurement, RunFolder.create(tmp_path / "run"), Quiet(), tmp_path, 0)


def reasons_of(context: PassContext) -> dict[str, str]:
    return {record["variant"]: record["reason"] for record in context.folder.records("instructions.json")}


def test_without_valgrind_the_claim_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    context = a_context(tmp_path)
    run_instructions(context, [(PREFILL, "fast"), (PREFILL, "team006_before")])
    assert reasons_of(context) == dict.fromkeys(("fast", "team006_before"), NOT_INSTALLED)
    assert context.progress.notes == [  # type: ignore[attr-defined]
        f"instructions of fast on {PREFILL}, team006_before on {PREFILL}: {NOT_INSTALLED}"
    ]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What would be counted: nothing is."""
    remembered: list[Wanted] = []

    def only_asked(wanted: Wanted, **_: Any) -> list[dict[str, Any]]:
        remembered.append(wanted)
        return [counting.no_count(pair, "only asked for") for pair in wanted.pairs]

    monkeypatch.setattr(metric, "count", only_asked)
    monkeypatch.setattr(metric, "lacks", lambda: None)
    return remembered


def test_what_is_not_counted_has_a_reason(tmp_path: Path, asked: list[Wanted]) -> None:
    context = a_context(tmp_path)
    [state] = context.measurement.participants.states
    state.excluded["fast"] = "gates failed"
    run_instructions(context, [(PREFILL, "fast"), (PREFILL, "team006_before"), (PREFILL, "candle"), ("other", "fast")])
    [wanted] = asked
    assert wanted.pairs == ((PREFILL, "team006_before"),) and wanted.folder == tmp_path
    records = {(one["workload"], one["variant"]): one["reason"] for one in context.folder.records("instructions.json")}
    assert records == {
        (PREFILL, "fast"): "gates failed",
        (PREFILL, "candle"): "it is not measured on this workload",
        ("other", "fast"): "the workload is not in this run",
        (PREFILL, "team006_before"): "only asked for",
    }
    state.call_ns["team006_before"] = 2e9
    run_instructions(context, [(PREFILL, "team006_before")])
    assert len(asked) == 1 and "a call takes 2 s" in reasons_of(context)["team006_before"]


def test_functions_are_counted_in_a_process_of_their_own_as_often_as_they_are_short(
    tmp_path: Path, asked: list[Wanted]
) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    sides = (f"{tmp_path}/mine.py:sorts", f"{tmp_path}/mine.py:sorts_twice")
    plan = make_plan(Request(compare=sides, calls=(f"{tmp_path}/mine.py:words",)), [])
    context = a_context(tmp_path)
    given = context.measurement.setting
    setting = replace(given, folders={}, functions=plan.functions.sources, calls=plan.calls())
    measurement = Measurement(plan.experiments, setting)
    context = replace(context, measurement=measurement)
    measurement.participants.states[0].call_ns |= {"sorts": 20_000.0, "sorts_twice": 40_000.0}
    run_instructions(context, everything(context))
    [wanted] = asked
    assert wanted.folder is None and [name for _, name in wanted.pairs] == [FUNCTION_REFERENCE, "sorts", "sorts_twice"]
    assert wanted.called["words"][1] == 500 == counting.COUNTED_NS / 20_000
    assert counting.calls_of_functions([90e6]) == counting.INPUTS
    assert counting.calls_of_functions([10.0]) == counting.MOST_CALLS == counting.calls_of_functions([0.0])


def test_everything_is_all_that_can_be_counted_the_reference_benchmark_first(tmp_path: Path) -> None:
    """`--count-instructions`: no controls, but also what was excluded, whose reason is then in the file."""
    context = a_context(tmp_path)
    [state] = context.measurement.participants.states
    state.excluded["fast"] = "gates failed"
    assert everything(context) == [(PREFILL, name) for name in ("yardstick", "team006_before", "fast")]
    generation = a_context(tmp_path / "another", workload="generate-tiny-t8-n6-b1")
    assert everything(generation) == []


@pytest.mark.parametrize(
    ("workload", "variant", "said"),
    [
        ("rope-t8", "fast", "one part of a layer"),
        ("generate-tiny-t8-n6-b1", "fast", "a generation is not counted"),
        (PREFILL, "candle_engine", "an engine is not counted"),
        (PREFILL, "fast_compiled", "compiled code is not counted"),
        (PREFILL, "fast", None),
        (PREFILL, "mine", None),
    ],
)
def test_what_callgrind_is_no_use_for(workload: str, variant: str, said: str | None) -> None:
    reason = cannot_count(workloads.get(workload), variant, {"mine": "mine.py:mine"})
    assert reason is None if said is None else said in str(reason)
    work = workloads.get(workload).model_copy(update={"kind": "prefill", "threads": 2})
    assert "one thread at a time" in str(cannot_count(work, variant, {}))


def test_a_process_that_cannot_begin_leaves_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called valgrind here ends at once; so might a valgrind that does not know the processor."""
    for name in ("valgrind", "vgdb"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    wanted = Wanted(tmp_path, (workloads.get(PREFILL),), ((PREFILL, "fast"),), {}, 0)
    [record] = count(wanted, cache=tmp_path, log=tmp_path / "log", step=Quiet().step)
    assert "instructions" not in record and record["reason"].startswith("the process that counts")


def alive(mark: str) -> list[str]:
    """Command lines that hold this text."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            lines.append(path.read_bytes().decode(errors="replace"))
    return [line for line in lines if mark in line]


NEEDS_VALGRIND = pytest.mark.skipif(not shutil.which("valgrind"), reason=NOT_INSTALLED)


PROGRAM = """
import sys
from pathlib import Path
from llama_workbench.datasets.workloads import Workload
from llama_workbench.harness.calls.called import Call
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.slices.instructions.counting import Wanted, count

here = Path(sys.argv[1])
work = Workload(name="words", kind="call", geometry="", tokens=1, payload="mine.py:words", description="words")
sides, call = {"sorts": parse(f"{here}/mine.py:sorts", option="x")}, parse(f"{here}/mine.py:words", option="x")
called = {"words": (Call(sides["sorts"], call), 400)}
wanted = Wanted(None, (work,), (("words", "sorts"),), {}, 0, sides, called, torch=False)
count(wanted, cache=here, log=here / "log", step=lambda *shown: None)
"""


@pytest.mark.covers("harness/calls", "harness/slices/instructions", "harness/worker")
@NEEDS_VALGRIND
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_count_that_is_ended(tmp_path: Path, by: signal.Signals) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell ignores it in what it starts with &
    ) as counting_process:  # fmt: skip
        end = time.monotonic() + 60
        while not (begun := alive(f"{tmp_path}/workbench-count-")) and time.monotonic() < end:
            time.sleep(0.05)
        assert begun  # not asked again: a program that becomes another has no command line for a moment
        counting_process.send_signal(by)
    end = time.monotonic() + 10
    while (left := alive(f"{tmp_path}/workbench-count-")) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


@pytest.mark.covers("harness/calls", "harness/slices/instructions", "harness/worker")
@pytest.mark.long
@NEEDS_VALGRIND
def test_a_real_count_repeats_and_an_identical_copy_has_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process under callgrind, with all that may become of its children."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = cache_directory()
    folder = synthesize(geometries.get("tiny"), seed=0, cache=cache)
    copies = ("team005_proposal@copy", "team005_proposal@aa")
    names = ("raises", "team005_proposal", *copies, "team006_before", "hangs", "kills")
    added = {name: source.parse(f"{OUTSIDE}:{name}", option="x") for name in ("raises", "hangs", "kills")}
    pairs = tuple((PREFILL, name) for name in names)
    told = Quiet()
    wanted = Wanted(folder, (workloads.get(PREFILL),), pairs, added, 0, limits={(PREFILL, "hangs"): 5.0})
    records = count(wanted, cache=cache, log=tmp_path / "log", step=told.step)
    raised, ours, copy, third, other, hung, killed = records
    assert [record["variant"] for record in records] == [*names]
    for record in (ours, copy, third, other):
        assert record["reason"] is None and record["calls"] > 0 and record["instructions"] > 100_000
        assert sum(record["by"].values()) == pytest.approx(record["instructions"])
        assert record["by"][PYTHON] > 0 and record["by"][KERNELS] > 0
        assert record["capability"] and set(record["versions"]) == {"torch", "python", "valgrind"}
    # mostly the same to the last instruction; on a busy machine one of the three may have 0.05 % more, also the first
    assert ours["again"] == pytest.approx(ours["instructions"], rel=2e-4)  # the first that has a count
    least, middle, most = sorted(each["instructions"] for each in (ours, copy, third))
    assert min(middle / least, most / middle) < 1 + 5e-4 and most / least < 1 + 2e-3
    assert other["instructions"] > 1.01 * ours["instructions"] and other["again"] is None
    for record, said in ((raised, "RuntimeError"), (hung, "hangs: no count in 5 s"), (killed, "SIGKILL")):
        assert "instructions" not in record and said in record["reason"]
    assert told.steps[-1][1] == 1 and not alive(f"{tmp_path}/workbench-count-")


@pytest.mark.covers("harness/calls", "harness/slices/instructions", "harness/worker")
@NEEDS_VALGRIND
@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=pytest.mark.long)])
def test_functions_are_counted_without_torch_where_they_use_none(tmp_path: Path, torch: bool) -> None:
    """A function, itself once more, one that does more, and a wrong one."""
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    work = Workload(name="words", kind="call", geometry="", tokens=1, payload="mine.py:words", description="words")
    sides = {"sorts": "sorts", "again": "sorts", "twice": "sorts_twice", "wrong": "drops_one"}
    functions = {name: source.parse(f"{tmp_path}/mine.py:{each}", option="x") for name, each in sides.items()}
    called = {work.name: (Call(functions["sorts"], source.parse(f"{tmp_path}/mine.py:words", option="x")), 400)}
    wanted = Wanted(None, (work,), tuple((work.name, name) for name in functions), {}, 0, functions, called, torch)
    once, same, twice, wrong = count(wanted, cache=cache_directory(), log=tmp_path / "log", step=Quiet().step)
    for record in (once, same, twice):
        assert record["reason"] is None and (record["calls"], record["inputs"]) == (400, counting.INPUTS)
        assert record["versions"].keys() == {"python", "valgrind", "numpy", *["torch"] * torch}
        assert bool(record["capability"]) == torch
    assert once["again"] == pytest.approx(once["instructions"], rel=2e-3)
    assert same["instructions"] == pytest.approx(once["instructions"], rel=2e-3)
    assert 1.1 < twice["instructions"] / once["instructions"] < 2.1
    assert "instructions" not in wrong and "gives another answer" in wrong["reason"]


def test_outside_of_valgrind_nobody_takes_a_request() -> None:
    assert toggle_of_valgrind() is None


@pytest.mark.covers("action.yml", "harness", "llama_workbench", "variants")
@pytest.mark.long
@NEEDS_VALGRIND
def test_five_percent_more_work_in_a_pull_request_fails(tmp_path: Path) -> None:
    opened = PullRequest.opened(tmp_path, additions=2100)
    # So few processes decide nothing by their time: here the counts do. `action_trials` has both.
    done = opened.compare(subjects="work.py:total\n", call="inputs.py:numbers\n", budget="0.5", slower="20")
    assert done.returncode == 1, done.stdout + done.stderr
    summary = opened.summary
    assert "→ the working tree: 1 of 1 slower" in summary and summary.endswith(f"{MARKER}\n")
    assert opened.outputs() == {"exit-code": "1", "summary": str(opened.temporary / "workbench" / "comparison.md")}
    assert (opened.temporary / "summary.md").read_text().endswith(summary), (
        "a summary of a job grows by each of its steps"
    )


WORK = """\
def before(numbers):
    return [sum(numbers) for _ in range(2000)][-1]


def mine(numbers):
    return [sum(numbers) for _ in range({additions})][-1]
"""


@pytest.mark.covers(".github", "harness/baselines", "harness/slices/instructions", "llama_workbench")
@pytest.mark.long
@NEEDS_VALGRIND
def test_five_percent_more_work_is_caught_and_unchanged_code_passes(tmp_path: Path) -> None:
    """Two real runs: the main branch, and a pull request that changes one of two functions.

    Other tests compute beside them, now more and now less, so a few seconds of time decide nothing here. Functions are
    counted in seconds where torch takes minutes.
    """
    scratch = Scratch(
        tmp_path / "scratch",
        "--compare work.py:before work.py:mine --call inputs.py:numbers --budget 12 --count-instructions --no-causes",
    )

    def write(additions: int) -> None:
        scratch.folder.mkdir(exist_ok=True)
        (scratch.folder / "work.py").write_text(WORK.format(additions=additions), encoding="utf-8")

    write(2000)
    inputs = (
        "def numbers(seed):\n    return ([seed, *range(20)],)\n"  # counts compare only where these stay as they are
    )
    (scratch.folder / "inputs.py").write_text(inputs, encoding="utf-8")
    settings = "[tool.llama-workbench.compare]\ntime = 100\ninstructions = 1\n"
    (scratch.folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    scratch.must("Measure")
    scratch.must("Keep this run as the new baseline")
    write(2100)
    scratch.must("Measure")
    caught = scratch.run("Compare")
    assert caught.returncode == 1, caught.stdout + caught.stderr
    text = (scratch.folder / "comparison.md").read_text(encoding="utf-8")
    assert text.startswith("### new against main: regression (1 regression, ") and text.endswith(f"{MARKER}\n")
    assert (scratch.folder / "summary.md").read_text(encoding="utf-8") == text
    assert "| mine | instructions |" in text.partition("<details>")[0]

    (scratch.folder / "pyproject.toml").write_text(settings.replace("= 1\n", "= 6\n"), encoding="utf-8")
    passed = scratch.run("Compare")
    assert passed.returncode == 0 and "::warning::" not in passed.stdout, passed.stdout + passed.stderr
