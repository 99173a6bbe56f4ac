"""All pages alike: one word, one interval and one time for one fact, names in words, text of a file that stays text,
and no words of models where functions were compared."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")
pytest.importorskip("plotly", reason="the dashboard's packages are not installed")

from streamlit.testing.v1 import AppTest

from llama_workbench import ROOT
from llama_workbench.dashboard import words
from llama_workbench.dashboard.sections.blocks import card, differing
from llama_workbench.dashboard.sections.strips import PAGE
from llama_workbench.dashboard.views import data, outcomes
from llama_workbench.datasets.workloads import workloads as shipped
from llama_workbench.harness.report.outcome import trust_of
from llama_workbench.harness.report.workload_names import distinct, named, shipped_named
from llama_workbench.harness.session.judging import rejudge
from llama_workbench.harness.spec.table import NameColumn, Table
from llama_workbench.harness.store.files import MANIFEST, SAMPLES
from llama_workbench.harness.store.schema import Workload
from llama_workbench.harness.store.tables import write_table
from tests import runs
from tests.dashboard_pages import alts, everything, open_in_app, read, strips
from tests.dashboard_runs import HOSTILE, MARKUP, a_sweep, add_phases, deface

CLAIMS, FUNCTIONS = "reference", "first-comparison"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two committed runs: one of claims, and one of two functions."""
    results = tmp_path_factory.mktemp("results")
    for name in (CLAIMS, FUNCTIONS):
        shutil.copytree(ROOT / "results" / "baselines" / name, results / "baselines" / name)
    return results


def seen(app: AppTest) -> str:
    """All that a page says, pictures in words included."""
    assert not app.exception, app.exception[0].message
    html = " ".join(re.sub(r"<[^>]*>", "", each.value) for each in app.get("html") if hasattr(each, "value"))
    return " ".join([everything(app), html, *map(read, alts(app))])


def trust_words(app: AppTest) -> list[str]:
    """What the link to the trust of the run says."""
    return [each.proto.label for each in app.get("page_link") if "show=trust" in each.proto.query_string]


@pytest.mark.parametrize("run", [CLAIMS, FUNCTIONS])
def test_every_page_says_the_same_of_how_far_a_run_is_trusted(
    home: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    trust = trust_of(data.read_run(home / "baselines" / run).noise)
    for page in ("answer", PAGE, "two_runs", "trust"):
        app = open_in_app(page, monkeypatch, home, run=run)
        assert trust_words(app) == [trust.word], page
        assert trust.short in [read(each.value) for each in app.caption] or trust.is_whole, page
    assert app.header[0].value == trust.word and trust.finding in seen(app)
    listed = open_in_app("runs", monkeypatch, home).dataframe[0].value.set_index("run")
    assert trust.finding.endswith(str(listed.loc[f"./?run=baselines/{run}", "identical code"]))


def test_a_claim_has_one_word_and_one_interval_on_all_pages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = data.read_run(home / "baselines" / CLAIMS)
    app = open_in_app("answer", monkeypatch, home, run=CLAIMS)
    assert not app.exception
    rows = {row["index"]: row for row in strips(app)["claims"]["rows"]}
    for shown in strips(app)["answer"]["cards"][:2]:
        claim, query = run.claims[shown["index"]], strips(app)["answer"]["queries"][shown["index"]]
        look = outcomes.look_of(claim)
        assert rows[shown["index"]]["look"]["word"] == look.word
        evidence = open_in_app(PAGE, monkeypatch, home, **query)
        text = seen(evidence)
        assert look.word in read(evidence.header[0].value)
        told = [cell["told"] for cell in [*rows[shown["index"]]["cells"], *rows[shown["index"]]["rest"]] if cell]
        for effect in claim.effects:
            assert words.effect(effect) in "; ".join(told), "on the first page"
            assert words.effect(effect) in text, "beside the evidence"


def test_two_functions_have_one_word_one_interval_and_one_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = data.read_run(home / "baselines" / FUNCTIONS)
    [claim] = run.claims
    [effect] = claim.effects
    app = open_in_app("answer", monkeypatch, home, run=FUNCTIONS)
    text, headline = seen(app), read(app.header[0].value)
    assert f"badge[{effect.verdict.look.word}]" in headline
    times = re.findall(r"[\d.]+ [mµn]?s\b", headline)
    assert len(times) == 2 and all(time in text for time in times)
    evidence = seen(open_in_app(PAGE, monkeypatch, home, run=FUNCTIONS))
    assert words.effect(effect) in evidence and effect.verdict.look.word in evidence
    assert all(time in evidence for time in times)
    listed = open_in_app("runs", monkeypatch, home).dataframe[0].value.set_index("run")
    told = listed.loc[f"./?run=baselines/{FUNCTIONS}", "compared, and what came out"]
    assert told == f"{effect.baseline} → {effect.variant}: {effect.verdict.look.word.lower()}"


def test_no_page_calls_open_what_is_inconclusive(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("answer", PAGE, "runs", "two_runs", "history", "trust"):
        text = seen(open_in_app(page, monkeypatch, home, run=CLAIMS))
        assert not re.search(r"(?i)verdict is open|\bopen verdict|hollow: open|self-check failed", text), page


# -- what a run says is text -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every name and text tries to be markup, with phases and sweeps."""
    results = tmp_path_factory.mktemp("hostile")
    run = runs.write_run(results / "runs" / "hostile", rounds=12)
    add_phases(run)
    deface(run)
    facts = run.records("phases.json")
    run.write_json("phases.json", [fact | {"clock": HOSTILE, "lines": HOSTILE} for fact in facts])
    run.write_json("memory_sweep.json", [a_sweep(HOSTILE, 100_000, reason=HOSTILE)])
    return results


@pytest.mark.parametrize("page", ["answer", "claim", "breakdown", "memory", "runs", "history", "trust"])
@pytest.mark.whole
def test_a_hostile_run_is_shown_as_it_is_written(hostile: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    link = {"claim": "mask-caching-helps"} if page in ("answer", "claim") else {}
    app = open_in_app(page, monkeypatch, hostile, **link)
    assert not app.exception
    for element in [*app.markdown, *app.caption, *app.header, *app.warning, *app.info]:
        assert not re.search(r"<(?!br>)", re.sub(r"\\.", "", element.value)), "a bare < could open a tag"
        assert not getattr(element, "allow_html", False)
    if page in ("answer", "claim"):
        assert MARKUP in everything(app)
    if page not in ("runs", "history"):
        assert HOSTILE in everything(app)


# Names in words: what pages call a workload, and the cards that say what a workload or a variant is.


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prefill-7b-1layer-t8", "prefill, 8 tokens, one 7B layer"),
        ("prefill-15m-t2048", "prefill, 2,048 tokens, 15M"),
        ("prefill-15m-t128-distinct", "prefill, about 128 tokens, all lengths different, 15M"),
        ("prefill-15m-trace", "prefill, lengths of a trace, 15M"),
        ("prefill-15m-t512-chunk128", "prefill, 512 tokens in chunks of 128, 15M"),
        ("prefill-15m-t128-b4", "prefill, 4 × 128 tokens, 15M"),
        ("decode-width-256-c1", "decode, after 1 token, width 256"),
        ("decode-15m-c64-b16", "decode, 16 × after 64 tokens, 15M"),
        ("generate-15m-t32-n32", "generate, 32 after 32, 15M"),
        ("decode-7b-1layer-c64-threads2", "decode, after 64 tokens, one 7B layer, 2 threads"),
        ("prefill-15m-t128-bfloat16", "prefill, 128 tokens, 15M, bfloat16"),
        ("mask-get-t128", "get a mask, 128 tokens"),
        ("rope-t128", "RoPE, 128 tokens"),
    ],
)
def test_a_workload_in_words(name: str, said: str) -> None:
    assert named(shipped()[name]) == said
    assert shipped_named([name, "mine"]) == {name: said, "mine": "mine"}


def test_no_two_shipped_workloads_have_the_same_words() -> None:
    names = shipped_named(shipped())
    assert len({*names.values()}) == len(names)
    assert not [said for name, said in names.items() if said.endswith(f"({name})")], "and none needs its name for it"


def test_what_is_not_a_task_for_a_model_keeps_its_name() -> None:
    call = Workload(name="texts", kind="call", payload="mine.py:texts", tokens=1)
    assert named(call) == "texts" and named(Workload(name="old")) == "old"
    assert distinct({"a": "x", "b": "x", "c": "y"}) == {"a": "x (a)", "b": "x (b)", "c": "y"}


def test_a_card_says_what_a_variant_is_and_how_it_is_built() -> None:
    one = card("team005_hybrid")
    assert one.told.startswith("Layered files, but one Cache for KV") and "cache: unified" in one.axes and one.source
    assert "an A/A check" in card("fast@aa").told and "an A/A check" in card("fast@copy").told
    assert card("old.total").axes == "" and "Named on the command line" in card("old.total").told


def test_cards_of_several_name_only_what_differs() -> None:
    pair = ["team005_hybrid", "team006_before", "llama_cpp"]
    assert differing(pair) == ["cache", "mask"]
    assert card(pair[0], differing(pair)).axes == "cache: unified, mask: per model"
    assert "attention" in differing(["fast", "team006_before"]), "one alone is told whole"


# A run that compared two functions, on every page: no words of models.


APP = ROOT / "dashboard" / "app.py"
OF_MODELS = re.compile(r"(?i)llama|logits|token|forward|layer|prefill|decode|operations|yardstick|torch\.nn")


NAMES = {"team006_before": "old.total", "team006_after": "new.total", "decode-15m-c64": "numbers"}
PAGES = ("answer", "claim", "attribution", "breakdown", "memory", "runs", "two_runs", "trust")
EXPLORED = ("attribution", "breakdown", "memory")


def renamed(text: str) -> str:
    for old, new in NAMES.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def functions_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `--compare old.py:total new.py:total --call mine.py:numbers` leaves it."""
    results = tmp_path_factory.mktemp("results")
    pair = ("team006_before", "team006_after")
    others = [name for name in runs.FACTORS if name not in pair and not name.startswith("team006_before@")]
    run = runs.write_run(
        results / "runs" / "two", rounds=12, compare=pair, only=["decode-15m-c64"], without=others, judged=False
    )
    table = run.read_samples()
    other = {name: table.names(name) for name in ("workload", "variant")}
    other = {name: NameColumn(tuple(map(renamed, column.values)), column.codes) for name, column in other.items()}
    write_table(Table({**table.columns, **other}), run.path / SAMPLES)
    (run.path / MANIFEST).write_text(renamed((run.path / MANIFEST).read_text()))
    manifest = run.read_manifest()
    [experiment] = manifest["experiments"]
    experiment["workload"] = {"name": "numbers", "kind": "call", "payload": "mine.py:numbers", "tokens": 1}
    gates = {name: {"passed": True, "cases": 3} for name in experiment["variants"]}
    experiment |= {"gates": gates, "traces": {}, "trace_differences": []}
    command = ["pytest", "--benchmark", "--compare", "old.py:total", "new.py:total", "--call", "mine.py:numbers"]
    run.write_json("run.json", manifest | {"command": command, "checkpoints": {}, "dispute": {}})
    verdicts, judged = rejudge(run)
    run.write_json("verdicts.json", verdicts)
    run.write_json("run.json", judged)
    return results


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.whole
def test_no_page_speaks_of_models(page: str, functions_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = open_in_app(page, monkeypatch, functions_home)
    assert not app.exception
    text = everything(app)
    if page in EXPLORED:
        assert app.title[0].value == "Explore" and "--compare old.py:total new.py:total" in text
    assert not OF_MODELS.findall(text)
    if page == "claim":
        assert "both functions gave the same answers" in text and "new.total against old.total" in text
        assert "--compare old.py:total new.py:total --call mine.py:numbers" in text
