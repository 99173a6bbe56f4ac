"""Models from revisions of a repository, measured in one run; and runs of the user's own code that go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llama_workbench.commands.app import main
from llama_workbench.harness.calls.revisions import parse_at
from llama_workbench.harness.calls.world import WorldTurn
from llama_workbench.harness.plan.options import Options, PlanError, Request
from llama_workbench.harness.session import run as session
from llama_workbench.harness.session.run import go_on
from llama_workbench.harness.store import files
from llama_workbench.harness.store.files import RunError
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.worker.models import Built, variant_from
from tests.runs import Quiet
from tests.session.test_resume import measured
from tests.session.test_revisions import git
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm", "short_sessions")]

MODEL = """\
from llama_workbench import variants

from .tools import NUMBER


class Around:
    def __init__(self, model):
        self.model, self.reset = model, model.reset

    def forward(self, tokens, position):
        from pack import tools  # looked for while the model runs

        assert tools.NUMBER == NUMBER, f"{tools.NUMBER} for {NUMBER}"
        return self.model.forward(tokens, position)


def build(config, weights, *, max_length):
    '''One of a package.'''
    return Around(variants.get("fast").build(config, weights, max_length=max_length))
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a model and a function, of two revisions."""
    root = tmp_path / "project"
    (root / "pack").mkdir(parents=True)
    (root / "pack" / "__init__.py").write_text("")
    (root / "pack" / "model.py").write_text(MODEL)
    (root / "pack" / "text.py").write_text(
        "from .tools import NUMBER\n\ndef words(text):\n    return sorted(text.split())\n"
    )
    (root / "old.py").write_text("def words(text):\n    return sorted(sorted(text.split()))\n")
    (root / "bench.py").write_text(
        "def texts(seed):\n    return f'{seed} b a ' * 50\n\ndef same(a, b):\n    return a == b\n"
    )
    git(root, "init", "--quiet", "--initial-branch=trunk")
    for number in (1, 2):
        (root / "pack" / "tools.py").write_text(f"NUMBER = {number}\n")
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", f"commit {number}")
    monkeypatch.chdir(root)
    return root


def planned(folder: Path, **asked: Any) -> session.Run:
    options = Options(run_dir=folder, budget_seconds=600.0)
    return session.Run(session.plan_run(Request(**asked), options), options, Quiet())


# -- models ------------------------------------------------------------------------------------------------------------


def test_two_revisions_of_a_model_have_modules_of_their_own(repository: Path, turn: WorldTurn) -> None:
    from llama_workbench.harness.worker.correctness import small_geometries, small_weights

    texts = ("mine=pack.model:build@HEAD~1", "pack.model:build@HEAD", "now=pack.model:build")
    found = [variant_from(parse_at(text, option="x"), turn) for text in texts]
    assert [each.name for each in found] == ["mine", "build-HEAD", "now"]
    assert found[0].description == "One of a package."
    config = next(iter(small_geometries().values()))
    weights = small_weights(config, torch.float32)
    models = [each.build(config, weights, max_length=8) for each in found]
    for each, model in (*zip(found, models, strict=True), *zip(found[::-1], models[::-1], strict=True)):
        assert isinstance(each.build, Built)
        each.build.world.enter()
        model.reset()
        assert model.forward(torch.zeros(1, 4, dtype=torch.long), 0).shape == (1, config.vocab_size)


def test_models_of_two_revisions_are_measured_and_the_run_names_the_commits(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = "mine=pack.model:build@HEAD~1", "pack.model:build@HEAD"
    run = planned(repository.parent / "run", compare=("mine", new), added=(old,), workloads=("decode-tiny-c16",))
    assert run.plan.ad_hoc == (("mine", "build-HEAD"),)
    result, _ = measured(run, 2)
    assert not result.manifest.excluded and not result.manifest.experiments[0].excluded
    written = json.loads((run.folder.path / files.MANIFEST).read_text())
    known = written["sources"]["variants"]
    commits = [git(repository, "rev-parse", each) for each in ("HEAD~1", "HEAD")]
    assert [known[name]["commit"] for name in ("mine", "build-HEAD")] == commits
    assert str(repository.parent) not in json.dumps(written["sources"])
    asked = [f"{name}=pack.model:build@{commit}" for name, commit in zip(("mine", "build-HEAD"), commits, strict=True)]
    assert go_on(run.folder, Options(), budget=1.0)[0].plan.ad_hoc == run.plan.ad_hoc, "its code lies here"
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(repository.parent)
        with pytest.raises(RunError, match=f"Pass them again: --add-variant {asked[1]} --add-variant {asked[0]}"):
            go_on(run.folder, Options(), budget=1.0)
    assert go_on(run.folder, Options(), Request(added=tuple(asked)), budget=1.0)[0].plan.ad_hoc == run.plan.ad_hoc
    with pytest.raises(RunError, match="the code of mine changed"):
        go_on(run.folder, Options(), Request(added=(f"mine=pack.model:build@{commits[1]}", asked[1])), budget=1.0)


def test_a_file_may_be_given_twice_under_two_names(repository: Path) -> None:
    twice = ("one=pack/model.py:build", "pack/model.py:build")
    asked: Any = {"added": twice, "variants": ("one", "build"), "workloads": ("decode-tiny-c16",)}
    assert list(planned(repository.parent / "run", **asked).plan.added) == ["one", "build"]
    with pytest.raises(PlanError, match="a variant 'build' exists already; give it another name, NAME=FILE:FUNCTION"):
        planned(repository.parent / "other", added=(twice[1], "pack.model:build"))
    sides = planned(repository.parent / "third", compare=("pack.model:build", "pack/model.py:build@HEAD")).plan.ad_hoc
    assert sides == (("build", "build-HEAD"),)


def test_revisions_of_a_model_are_compared_by_the_command(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare-revisions", "HEAD~1", ".", "pack.model:build", "--workloads", "prefill-tiny-t16"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--budget", "1", "--slower", "400", "--json"])
    said = capsys.readouterr()
    assert ended.value.code in (0, 2), said.err
    [row] = json.loads(said.out)["rows"]
    assert row["workload"] == "prefill-tiny-t16" and row["rounds"] > 0
    known = json.loads((repository / row["run"] / files.MANIFEST).read_text())["sources"]["variants"]
    assert {"build-now", "yardstick"} < known.keys() and len(known) == 3
    with pytest.raises(SystemExit):
        main(["compare-revisions", "HEAD~1", ".", "bench.py:texts"])
    assert "bench.py:texts: needs an input generator: add --call" in capsys.readouterr().err


# -- functions ---------------------------------------------------------------------------------------------------------

COMPARED: Any = {
    "compare": ("old.py:words", "new=pack.text:words"),
    "calls": ("bench.py:texts",),
    "check": "bench.py:same",
}


@pytest.fixture
def of_functions(repository: Path) -> Path:
    """A run of functions that ended with an open verdict."""
    run = planned(repository.parent / "run", **COMPARED)
    measured(run, 3)
    return run.folder.path


def test_a_run_of_functions_goes_on(
    of_functions: Path, repository: Path, run_pytest: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository.parent)
    asked = "--compare old.py:words new=pack.text:words --call bench.py:texts --check bench.py:same"
    with pytest.raises(RunError, match=f"its functions were not found in this folder.*Pass them again: {asked}"):
        go_on(RunFolder(of_functions), Options(), budget=1.0)
    monkeypatch.chdir(repository)
    assert go_on(RunFolder(of_functions), Options(), budget=1.0)[0].plan.functions.sources, "its code lies here"
    earlier, options = go_on(RunFolder(of_functions), Options(), Request(**COMPARED), budget=600.0)
    assert earlier.plan.functions.sources.keys() == {"words", "new", "function_yardstick"}
    result, knew = measured(session.Run(earlier.plan, options, Quiet(), earlier), 2)
    assert 1 <= knew["new words"] <= 3 and result.folder.finished_rounds() == {"texts": 5}
    said = run_pytest("--benchmark", f"--continue={of_functions}", "--budget=1", *asked.split())
    assert said.returncode == 0, said.stdout + said.stderr
    assert RunFolder(of_functions).finished_rounds()["texts"] > 5
    assert len(RunFolder(of_functions).read_manifest()["sittings"]) == 3


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("pack/tools.py", "the code of new changed"),
        ("old.py", "the code of words changed"),
        ("bench.py", "the input generator of texts changed"),
    ],
)
def test_functions_that_changed_are_refused(of_functions: Path, repository: Path, file: str, told: str) -> None:
    (repository / file).write_text((repository / file).read_text() + "\nMORE = 1\n")
    with pytest.raises(RunError, match=told):
        go_on(RunFolder(of_functions), Options(), Request(**COMPARED), budget=1.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compare": ("old.py:words", "pack.text:words")}, "other functions, or under other names"),
        ({"calls": ("other=bench.py:texts",)}, "other functions, or under other names"),
        ({"check": None}, "the output check of texts changed"),
    ],
)
def test_other_functions_are_refused(of_functions: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(RunError, match=told):
        go_on(RunFolder(of_functions), Options(), Request(**COMPARED | given), budget=1.0)


def test_a_run_of_models_takes_no_functions(repository: Path) -> None:
    run = planned(repository.parent / "run", compare=("team006_before", "fast"), workloads=("decode-tiny-c16",))
    measured(run, 1)
    with pytest.raises(PlanError, match=r"--compare: .*keeps its own plan; leave it out"):
        go_on(run.folder, Options(), Request(**COMPARED), budget=1.0)
