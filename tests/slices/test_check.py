"""`workbench check`: which calls of a wrong variant are wrong, and why."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from llama_workbench import ROOT
from llama_workbench.cache import cache_directory
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.metrics.base import PassContext
from llama_workbench.harness.slices.check import metric as check_metric
from llama_workbench.harness.slices.check.metric import CheckHypothesis
from llama_workbench.harness.slices.check.worker import MISTAKES, check, logits_with
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import ExactResult
from llama_workbench.harness.worker import channel, model_gating
from llama_workbench.harness.worker.correctness import small_cases, small_geometries, small_weights
from llama_workbench.harness.worker.state import Worker
from tests.calls.test_readings import judged
from tests.commands.test_cli import command, output
from tests.runs import Quiet

pytestmark = pytest.mark.usefixtures("warm")

DOUBLE = torch.float64

START = """
    from dataclasses import replace
    import torch
    from llama_workbench import variants

    def _fast(config, weights, max_length):
        return variants.get("fast").build(config, weights, max_length=max_length)

    def rows(weights, names, change):
        return {key: change(value) if any(name in key for name in names) else value for key, value in weights.items()}
"""

# Weights or a configuration that make a right Llama compute what one with the mistake would.
PLANTED = {
    "theta": "return _fast(replace(config, rope_theta=10_000.0), weights, max_length)",
    "scaling": "return _fast(replace(config, rope_scaling=None), weights, max_length)",
    "unscaled": "return _fast(config, rows(weights, ['q_proj'], lambda w: w * config.head_dim**0.5), max_length)",
    "swapped": """
        other = {"gate": "up", "up": "gate"}
        named = {k: next((k.replace(a, b) for a, b in other.items() if f"mlp.{a}_" in k), k) for k in weights}
        return _fast(config, {named[key]: value for key, value in weights.items()}, max_length)
    """,
    "neighbours": """
        order = lambda w: w.unflatten(0, (-1, config.head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)
        return _fast(config, rows(weights, ["q_proj", "k_proj"], order), max_length)
    """,
    "backwards": """
        half = config.head_dim // 2
        sign = torch.tensor([1.0] * half + [-1.0] * half, dtype=torch.float64)
        return _fast(config, rows(weights, ["q_proj", "k_proj"], lambda w: (w.unflatten(0, (-1, 2 * half))
            * sign[:, None]).flatten(0, 1)), max_length)
    """,
    "heads in turns": """
        heads = torch.arange(config.num_attention_heads).view(-1, config.num_key_value_heads).T.flatten()
        weights = rows(weights, ["q_proj"], lambda w: w.unflatten(0, (-1, config.head_dim))[heads].flatten(0, 1))
        weights = rows(weights, ["o_proj"], lambda w: w.unflatten(1, (-1, config.head_dim))[:, heads].flatten(1, 2))
        return _fast(config, weights, max_length)
    """,
}

# The same in its code: what is written wrong in a copy of the reference benchmark's, and how.
EDITED = {
    "epsilon 1e-5": ("c.rms_norm_eps", "1e-5"),
    "epsilon 1e-6": ("c.rms_norm_eps", "1e-6"),
    "mask without past": ("triu_(position + 1)", "triu_(1)"),
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """A file whose function `mine` has this body; more code may come before it."""

    def write(body: str, before: str = "") -> Path:
        path = tmp_path / "mine.py"
        head = "def mine(config, weights, *, max_length):\n"
        lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        path.write_text(textwrap.dedent(START) + textwrap.dedent(before) + head + lines + "\n")
        return path

    return write


def found(path: Path) -> dict:
    """What the verb finds, in this process."""
    worker = Worker(
        {"cache": str(cache_directory()), "threads": 1, "added": {"mine": asdict(parse(f"{path}:mine", option="x"))}}
    )
    return check(worker, "mine")


def test_without_a_mistake_it_is_the_reference_and_each_mistake_shows() -> None:
    worker = Worker({"cache": str(cache_directory()), "threads": 1})
    errors = dict.fromkeys(["", *MISTAKES], 0.0)
    for geometry, config in small_geometries().items():
        right, weights = model_gating.of_small_gate(worker, geometry, DOUBLE), small_weights(config, DOUBLE)
        for mistake in errors:
            for case, expected in zip(small_cases(config), right, strict=True):
                for ours, theirs in zip(logits_with(mistake, config, weights, case.steps), expected, strict=True):
                    error = float((ours - theirs).abs().max() / theirs.abs().max())
                    errors[mistake] = max(errors[mistake], error)
    assert errors.pop("") < 1e-6
    assert all(error > 0.01 for error in errors.values()), errors


def copied(folder: Path, change: Callable[[str], str]) -> Path:
    """A file whose function `mine` is the reference benchmark's code with a change."""
    source = (ROOT / "variants" / "yardstick.py").read_text()
    assert change(source) != source
    path = folder / "mine.py"
    path.write_text(
        change(source)
        .replace("from .config", "from llama_workbench.variants.config")
        .replace("def build(", "def mine(")
    )
    return path


@pytest.mark.parametrize("mistake", [*PLANTED, *EDITED])
def test_a_mistake_is_named(tmp_path: Path, written: Callable[[str], Path], mistake: str) -> None:
    """In weights or a configuration, and in code."""
    if mistake in PLANTED:
        answer = found(written(PLANTED[mistake]))
    else:
        answer = found(copied(tmp_path, lambda source: source.replace(*EDITED[mistake])))
    assert answer["causes"] == [f"the logits of all calls are those of a Llama with this mistake: {MISTAKES[mistake]}"]
    assert any(call["fault"] for call in answer["calls"]) and answer["dtype"] == "float64"


@pytest.mark.parametrize("norm", ["input_layernorm", "post_attention_layernorm", "model.norm"])
def test_an_epsilon_that_is_wrong_in_one_norm_alone_is_refused(tmp_path: Path, norm: str) -> None:
    answer = found(
        copied(tmp_path, lambda source: re.sub(rf'(\b{norm}\.weight"\], )c\.rms_norm_eps', r"\g<1>1e-6", source))
    )
    wrong = [call for call in answer["calls"] if call["fault"]]
    assert {call["geometry"] for call in wrong} == {"plain"}  # whose epsilon is 1e-5
    assert max(call["error"] for call in wrong) > 100 * answer["tolerance"]
    assert any("another epsilon" in cause for cause in answer["causes"])


def test_a_size_of_heads_that_is_derived_is_refused_and_told(tmp_path: Path) -> None:
    derived = "c.hidden_size // c.num_attention_heads"
    answer = found(copied(tmp_path, lambda source: source.replace("c.head_dim", derived)))
    assert {call["geometry"] for call in answer["calls"] if call["fault"]} == {"plain"}
    assert any("the size of a head is config.head_dim" in cause for cause in answer["causes"])


WRAPPED = """
    class Mine:
        def __init__(self, model, layers):
            self.model, self.layers, self.calls = model, layers, 0
            self.reset = model.reset

        def forward(self, tokens, position):
            self.calls += 1
            logits = self.model.forward(tokens, position)
            {}
            return logits

"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("logits = logits + (self.calls > 1 and position == 0)", "`reset` does not forget"),
        ("logits = logits.bfloat16().double()", "a type with fewer digits"),
        ("logits = logits if len(tokens) == 1 else logits.roll(1, 0)", "only batches are wrong"),
        ("logits = logits if position or tokens.shape[1] > 1 else logits + 1", "only calls of one token are wrong"),
        ("logits = logits if tokens.shape[1] == 1 else logits + 1", "only calls of several tokens are wrong"),
        ("logits = logits if position < 40 else logits + 1", "first calls are right and later ones are not"),
        ("logits = logits if position + tokens.shape[1] < 48 else logits / 0", "NaN comes from rows of scores"),
        ("logits = logits if position + tokens.shape[1] < 48 else logits / 0", "only the whole context is wrong"),
    ],
)
def test_the_places_of_faults_say_where_to_look(written: Callable[..., Path], change: str, said: str) -> None:
    body = "return Mine(_fast(config, weights, max_length), config.num_hidden_layers)"
    causes = found(written(body, WRAPPED.format(change)))["causes"]
    assert any(said in cause for cause in causes), causes


def test_an_error_is_told_with_its_line(written: Callable[..., Path]) -> None:
    path = written("return Mine(_fast(config, weights, max_length), 2)", WRAPPED.format("logits[7]"))
    line = path.read_text().splitlines().index("        logits[7]") + 1
    done = command("check", path)
    assert done.returncode == 1 and not done.stderr
    text = " ".join(done.stdout.split())
    assert f"(mine.py, line {line})" in text and "raises IndexError: index 7 is out of bounds" in text
    assert "mine: 38 of 38 calls are wrong" in text


def test_one_s_own_file_may_lie_in_the_checkout() -> None:
    theirs = (ROOT / "mine.py", ROOT / "examples" / "mine.py", Path("/somewhere/else/mine.py"))
    assert not any(channel._is_known(str(path)) for path in theirs)
    ours = (ROOT / "variants" / "fast.py", Path(json.__file__), Path(torch.__file__), Path("<string>"))
    assert all(channel._is_known(str(path)) for path in ours)


def test_what_cannot_do_float64_is_checked_in_float32_as_in_the_gate(written: Callable[..., Path]) -> None:
    change = "assert tokens.shape[1] == 1 or logits.dtype == torch.float32"
    answer = found(written("return Mine(_fast(config, weights, max_length), 2)", WRAPPED.format(change)))
    assert answer["dtype"] == "float32" and not answer["causes"]
    assert len(answer["calls"]) == 38 and not any(call["fault"] for call in answer["calls"])


def test_a_wrong_variant_from_the_command_line(written: Callable[[str], Path]) -> None:
    path = written(PLANTED["theta"])
    done = command("check", f"{path}:mine", "--json")
    said = json.loads(done.stdout)
    assert done.returncode == 1 and said["right"] is False and said["variant"] == "mine" and not said["workloads"]
    wrong = [call for call in said["calls"] if call["fault"]]
    assert {call["geometry"] for call in wrong} == {"grouped"} and len(wrong) < len(said["calls"])
    assert {"case": "prefill", "number": 1, "tokens": 13, "position": 0}.items() <= wrong[0].items()
    assert said["tolerance"] < wrong[0]["error"] < 1


def test_right_ones_pass(written: Callable[[str], Path]) -> None:
    said = " ".join(output("check", written("return _fast(config, weights, max_length)")).split())
    assert said.startswith("mine: all 38 calls are right in float64")
    assert "generate-tiny-t8-n6-b3: right (16 cases; 1 case and 18 greedy tokens on tiny)" in said
    assert json.loads(output("check", "team003", "--json"))["right"] is True


def test_a_claim_is_read_and_planned(tmp_path: Path) -> None:
    source = Path("claims/rope-3x-5x.toml").read_text()
    path = tmp_path / "rope-3x-5x.toml"
    path.write_text(source)
    assert output("check", path).startswith("rope-3x-5x: right; 5 parts, ")
    (tmp_path / "pyproject.toml").write_text("[project]\n")  # another file beside it is no claim, and not read
    assert output("check", path).startswith("rope-3x-5x: right; 5 parts, ")
    path.write_text(source.replace("title =", "titel ="))
    done = command("check", path)
    assert done.returncode == 1 and "unknown key; did you mean 'title'?" in " ".join(done.stdout.split())
    path.write_text(source.replace('"rope-t32"', '"rope-t33"'))
    problems = json.loads(command("check", path, "--json").stdout)["problems"]
    assert any("rope-t33" in problem for problem in problems)
    path.write_text(source.replace("[[hypothesis]]", "[[hypothesis]]\nleft_out = 2").replace("title =", "titel ="))
    problems = json.loads(command("check", path, "--json").stdout)["problems"]
    assert {"left_out", "titel"} <= {problem.split(": ")[1].split(" ")[0].split(".")[-1] for problem in problems}


def test_a_claim_may_name_a_variant_from_outside(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "fusing-helps.toml"
    output("new", "claim", "fusing-helps", "--folder", tmp_path)
    path.write_text(path.read_text().replace('variant = "fast"', 'variant = "mine"'))
    assert "unknown variant 'mine'" in command("check", path).stdout
    mine = written("return _fast(config, weights, max_length)")
    assert output("check", path, "--add-variant", f"{mine}:mine").startswith("fusing-helps: right")


def test_what_new_writes_is_right_and_nothing_is_overwritten(tmp_path: Path) -> None:
    said = output("new", "variant", "build_mine", "--folder", tmp_path)
    assert said.splitlines()[1].split()[:2] == ["workbench", "check"]
    assert output("check", tmp_path / "build_mine.py").startswith("build_mine: all 38 calls are right")
    output("new", "claim", "fusing-helps", "--folder", tmp_path)
    assert output("check", tmp_path / "fusing-helps.toml").startswith("fusing-helps: right; 1 part, 2 timed effects")
    for words, problem in (
        (("variant", "build_mine"), "exists already"),
        (("claim", "fusing-helps"), "exists already"),
        (("variant", "fast"), "a variant of this name exists already"),
        *((("variant", name), "expected the name of a Python function") for name in ("build-mine", "class", "_mine")),
        *((("variant", name), "the file has this name already") for name in ("rms_norm", "F", "math", "Mine")),
        (("claim", "a", "--folder", tmp_path / "build_mine.py"), "cannot create this folder (File exists)"),
        (("claim", "Fusing helps"), "expected small letters"),
        (("claim", "a", "--folder", "/dev/null/no"), "cannot create this folder (Not a directory)"),
    ):
        done = command("new", *words, *(() if "--folder" in words else ("--folder", tmp_path)))
        assert done.returncode == 2 and problem in " ".join(done.stderr.split()), done


def test_a_new_workload_is_right_and_its_mistakes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "prefill-mine.toml"
    said = output("new", "workload", "prefill-mine", "--folder", tmp_path)
    assert f"pytest --benchmark --workloads-file {path} --compare team006_before fast" in said
    assert "prefill-mine" in output("workloads", "--file", path)
    assert json.loads(output("check", path, "--json")) == {"format": 1, "right": True, "workloads": ["prefill-mine"]}
    source = path.read_text()
    for old, new, problem in (
        ("tokens = 200", "tokens = 0", "tokens = 0, expected"),
        ("prefill-mine", "prefill-15m-t128", "a workload 'prefill-15m-t128' ships already"),
        ('"15m"', '"16m"', "15m"),
    ):
        path.write_text(source.replace(old, new))
        done = command("check", path)
        assert done.returncode == 1 and problem in " ".join(done.stdout.split()), done
    for name, problem in (("Mine", "expected small letters"), ("rope-t8", "ships already"), ("prefill-mine", "exists")):
        done = command("new", "workload", name, "--folder", tmp_path)
        assert done.returncode == 2 and problem in " ".join(done.stderr.split()), done


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.py", None, "none.py: cannot be read (No such file or directory)"),
        ("none.toml", None, "none.toml: no such file"),
        ("bad.py", "def f(:", "bad.py: not valid Python"),
        ("empty.py", "x = 1", "expected one function build(config, weights, *, max_length); it has none"),
        ("two.py", "def a(c, w, *, max_length): ...\ndef b(c, w, *, max_length): ...", "it has a, b: name one, "),
        ("raises.py", "def a(c, w, *, max_length): ...\n1 / 0", "raises.py: importing it raised ZeroDivisionError"),
        ("dies.py", "import os\ndef a(c, w, *, max_length): os._exit(3)", "a: ends its process (exit code 3)"),
        ("fats", None, "fast"),
        ("candle_engine", None, "candle_engine is an engine"),
    ],
)
def test_what_cannot_be_checked_is_told(tmp_path: Path, name: str, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = command("check", name, cwd=tmp_path)
    assert done.returncode == 2 and said in " ".join(done.stderr.split()), done
    assert "Traceback" not in done.stderr and not done.stdout


def checked(tmp_path: Path, *checks: tuple[str, str]) -> list[ExactResult]:
    """What the pass stores of checks of these names, and of these variants."""
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "log").mkdir()
    context = PassContext(None, folder, Quiet(), tmp_path, 0)  # type: ignore[arg-type]
    asked = [CheckHypothesis(metric="check", quantity=name, variant=variant) for name, variant in checks]
    check_metric.METRIC.run(asked, context)
    stored = check_metric.METRIC.read(folder)
    return [stored["check", name, "", variant, ""] for name, variant in checks]


def test_a_check_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    name = "team008_cache_literal"
    theirs, whole, missing = checked(
        tmp_path, ("like-the-library", name), ("like-the-library-but-for-chunks", name), ("no-such-check", "")
    )
    assert (whole.count, whole.value) == (10, 100.0), whole
    assert theirs.count == 16, theirs
    assert theirs.value == 62.5 and theirs.detail.count("off by") == 6 and "chunk" in theirs.detail
    assert math.isnan(missing.value) and "no-such-check" in missing.reason


def test_a_case_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cases = [("one", True, ""), ("two", False, "off by 3")]
    monkeypatch.setattr(check_metric, "run_check", lambda *args, **more: cases)
    [found] = checked(tmp_path, ("q", ""))
    assert found.value == 50 and found.detail == "two: off by 3"
    verdict = judged(found, metric="check", quantity="q")
    assert verdict.verdict == "refuted" and "two: off by 3" in verdict.effects[0].said
