"""A metric is one file: nothing else knows it by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_workbench import ROOT
from llama_workbench.harness import metrics as package
from llama_workbench.harness.claims.model import ClaimError
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.metrics.registry import metric_of, metrics, names
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report.terminal import console, show, verdict_report
from llama_workbench.harness.session.run import Run, plan_run
from llama_workbench.harness.store.files import FORMS, JOURNAL, SAMPLES, SUMS
from tests.reference import declared_files
from tests.runs import Quiet

TOY = '''
"""How many letters a variant's name has."""

from typing import Literal

from llama_workbench.harness.metrics.base import ExactMetric, ExactResult
from llama_workbench.harness.spec.hypotheses import Name, Names, RangeHypothesis


class ToyHypothesis(RangeHypothesis):
    metric: Literal["toy"]
    variant: Name
    workloads: Names

    @property
    def unit(self):
        return "letters"

    def subjects(self):
        return tuple((workload, self.variant) for workload in self.workloads)


class ToyMetric(ExactMetric[ToyHypothesis]):
    names = ("toy",)
    hypothesis = ToyHypothesis
    title = "toy"
    does = "the letters of names"

    def run(self, hypotheses, context):
        subjects = [pair for hypothesis in hypotheses for pair in hypothesis.subjects()]
        letters = [context.measurement.letters(variant) for _, variant in subjects]
        self.store([ExactResult("toy", "", *pair, "", n, 1) for pair, n in zip(subjects, letters)], context)


METRIC = ToyMetric()
'''

CLAIM = """\
id = "short-name"
title = "A short name"
who = ["TEAM-1"]
source = [{ document = "Notes", section = "Names" }]
statement = "Its name is short."
assumes = []
decided_by = "Counting its letters."

[[hypothesis]]
metric = "toy"
variant = "fast"
workloads = ["prefill-tiny-t16"]
at_most = 4
"""


class Letters:
    """What stands for a measurement: the toy asks no process."""

    def letters(self, name: str) -> int:
        return len(name)


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Path]:
    """A folder of claims, one of them about a metric that a single new file adds."""
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "toy.py").write_text(TOY, encoding="utf-8")
    claims = tmp_path / "claims"
    claims.mkdir()
    (claims / "short-name.toml").write_text(CLAIM, encoding="utf-8")
    package.__path__.append(str(folder))
    metrics.cache_clear()
    yield claims
    package.__path__.remove(str(folder))
    sys.modules.pop(f"{package.__name__}.toy", None)
    metrics.cache_clear()


def test_a_new_metric_is_one_new_file(toy: Path, tmp_path: Path) -> None:
    options = Options(run_dir=tmp_path / "run", claims_folder=toy)
    plan = plan_run(Request(), options)
    [experiment] = plan.experiments
    assert (experiment.workload.name, experiment.variants, experiment.targets) == ("prefill-tiny-t16", ("fast",), ())
    progress = Quiet()
    run = Run(plan, options, progress)
    run._make_passes(Letters())  # type: ignore[arg-type]
    assert (progress.phases, progress.notes) == (["toy: the letters of names"], [])
    result = run._finish("complete")
    run.lock.close()
    [verdict] = result.folder.records("verdicts.json")
    assert (verdict["verdict"], verdict["claimed"]) == ("supported", "at most 4 letters")
    [effect] = verdict["effects"]
    assert (effect["value"], effect["unit"], effect["workload"]) == (4, "letters", "prefill-tiny-t16")
    out = console(file=(tmp_path / "report.txt").open("w+", encoding="utf-8"))
    show(verdict_report(result.verdicts, result.manifest), out)
    out.file.flush()
    assert re.search(r"prefill-tiny-t16 +4 letters +supported", (tmp_path / "report.txt").read_text(encoding="utf-8"))


def test_faults_in_a_claim_about_it_are_told_like_any_other(toy: Path) -> None:
    text = CLAIM.replace("at_most = 4", 'at_most = "4"\nworkload = "x"').replace('variant = "fast"\n', "")
    (toy / "short-name.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ClaimError) as caught:
        load_claims(toy)
    told = str(caught.value)
    assert "hypothesis[0].variant is missing, expected a name of letters" in told
    assert "hypothesis[0].at_most = '4', expected a number" in told
    assert "hypothesis[0].workload = 'x': unknown key; did you mean 'workloads'?" in told


@pytest.mark.whole
def test_without_the_file_there_is_no_such_metric(toy: Path) -> None:
    assert "toy" in names()
    package.__path__.pop()
    metrics.cache_clear()
    try:
        with pytest.raises(ClaimError, match=r"metric = 'toy', expected one of attribution, check, .*, trend"):
            load_claims(toy)
        with pytest.raises(KeyError, match="no metric 'toy'; there are attribution"):
            metric_of("toy")
    finally:
        package.__path__.append(str(toy.parent / "metrics"))


def test_names_are_given_once() -> None:
    assert len(set(names())) == len(names())
    for metric in metrics():
        assert metric.hypothesis.__doc__ and type(metric).__doc__, metric.names


def test_a_metric_is_named_in_its_own_files_alone() -> None:
    """Beside its own folder a metric's name stands in file names and texts only."""
    word = re.compile('"(attribution|roofline|trend)"')
    elsewhere = [
        path
        for path in (ROOT / "harness").rglob("*.py")
        if not {"metrics", "slices", "store", "worker"} & {*path.parts}
    ]
    found = [
        f"{path.name}: {line}" for path in elsewhere for line in path.read_text().splitlines() if word.search(line)
    ]
    assert not found


@pytest.mark.whole
def test_every_hypothesis_that_ships_says_what_it_needs() -> None:
    claims = load_claims(ROOT / "claims")
    plan = make_plan(Request(everything=True), claims)
    taking_part = {(each.workload.name, name) for each in plan.experiments for name in each.variants}
    for hypothesis in plan.hypotheses():
        assert set(hypothesis.subjects()) <= taking_part
        assert hypothesis.title() and not hypothesis.fault()


def test_every_file_and_key_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "file-format.md").read_text(encoding="utf-8")
    assert all(f"## {name}\n" in page for name in (*FORMS, *declared_files(), SAMPLES, JOURNAL, SUMS))
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 150 and all(what.removesuffix(" |").strip() for _, _, what in rows)
