"""Claims: the ten that are shipped, and what is said about a file that is wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llama_workbench import ROOT
from llama_workbench.datasets.files import MOST_FAULTS, SMALL_BYTES
from llama_workbench.harness.claims.model import Claim, ClaimError
from llama_workbench.harness.claims.reading import (
    DISPUTE_FILE,
    check_claim,
    load_claims,
    read_claim,
    select,
    stored_claims,
)
from llama_workbench.harness.metrics.time import TimeHypothesis
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.regions import Region
from llama_workbench.harness.store.folder import RunFolder

GOOD = """\
id = "one-file"
title = "One file is faster"
who = ["TEAM-1", "TEAM-2"]
source = [{ document = "Notes", section = "Speed" }]
statement = "It is."
assumes = []
decided_by = "Measuring both."

[[hypothesis]]
evidence = "architecture"
variant = "single"
baseline = "many"
workloads = ["prefill", "decode"]
metric = "time"
faster_than_percent = 1
"""


def written(folder: Path, text: str, name: str = "claim.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> list[str]:
    """The problems with a file of this text, without the path that each of them starts with."""
    path = written(folder, text)
    with pytest.raises(ClaimError) as caught:
        read_claim(path)
    for problem in caught.value.problems:
        assert problem.startswith(str(path)), problem
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [problem.removeprefix(str(path)).removeprefix(": ") for problem in caught.value.problems]


# -- a good file ---------------------------------------------------------------------------------------------------


def test_a_good_claim_is_read_whole(tmp_path: Path) -> None:
    claim = read_claim(written(tmp_path, GOOD))
    assert (claim.id, claim.title, claim.who) == ("one-file", "One file is faster", ("TEAM-1", "TEAM-2"))
    assert (claim.source[0].document, claim.source[0].section) == ("Notes", "Speed")
    assert (claim.statement, claim.assumes, claim.decided_by) == ("It is.", (), "Measuring both.")
    [hypothesis] = claim.hypothesis
    assert isinstance(hypothesis, TimeHypothesis)
    assert (hypothesis.part, hypothesis.evidence, hypothesis.metric) == (None, "architecture", "time")
    assert (hypothesis.variant, hypothesis.baseline) == ("single", ("many",))
    assert claim.names() == ("single", "many") and claim.workloads() == ("prefill", "decode")
    assert list(claim.comparisons()) == [Comparison(name, "single", "many", "time") for name in ("prefill", "decode")]


def test_several_baselines_make_several_comparisons(tmp_path: Path) -> None:
    claim = read_claim(written(tmp_path, GOOD.replace('"many"', '["many", "few"]')))
    assert claim.names() == ("single", "many", "few")
    assert [(pair.baseline, pair.workload) for pair in claim.comparisons()] == [
        ("many", "prefill"), ("many", "decode"), ("few", "prefill"), ("few", "decode"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "region"),
    [
        ("faster_than_percent = 1", Region(math.log(1.01), math.inf)),
        ("slower_than_percent = 5", Region(-math.inf, math.log(1 / 1.05))),
        ("ratio = [2.0, 3.0]", Region(math.log(2), math.log(3))),
        ("gain_percent = [6, 11]", Region(math.log(1.06), math.log(1.11))),
        ("same_within_percent = 1", Region(-math.log(1.01), math.log(1.01))),
    ],
)
def test_each_expectation_is_a_region_of_the_log_ratio(tmp_path: Path, line: str, region: Region) -> None:
    [hypothesis] = read_claim(written(tmp_path, GOOD.replace("faster_than_percent = 1", line))).hypothesis
    assert (hypothesis.region.low, hypothesis.region.high) == pytest.approx((region.low, region.high))


def test_a_claim_survives_json(tmp_path: Path) -> None:
    claim = read_claim(written(tmp_path, GOOD.replace("faster_than_percent = 1", "ratio = [2, 3]")))
    assert Claim.model_validate(json.loads(json.dumps(claim.stored()))) == claim


# -- a wrong file --------------------------------------------------------------------------------------------------

KEYS = (
    "(keys here: part, who, metric, quick, small, device, evidence, variant, baseline, workloads, faster_than_percent, "
    "slower_than_percent, not_faster_than_percent, ratio, gain_percent, same_within_percent, margin)"
)
UNKNOWN = "unknown key"
TOP_KEYS = "(keys here: id, title, who, source, headline, statement, assumes, decided_by, function, call, hypothesis)"
METRIC = (
    "one of attribution, check, count, instructions, memory, none, roofline, share, "
    "share_of_parts, stated, time, time_to_first_token, time_per_output_token, trend"
)
NAME = "a name of letters, digits and any of . _ + - (no spaces)"
EXPECTATION = "faster_than_percent = 1"
ONE_OF = (
    "expected exactly one of faster_than_percent, slower_than_percent, not_faster_than_percent, ratio, gain_percent, "
    "same_within_percent; found"
)
TABLES = "one or more tables, each under [[hypothesis]] in double brackets"
PERCENT = "expected a number of percent, 0 or more"
ABOVE_0 = "expected a number of percent above 0"
RATIO = "expected [low, high] with 0 < low < high, of t_baseline / t_variant"
GAIN = "expected [low, high] percent with -100 < low < high"
ID = "expected a name of lower-case letters, digits, dots and hyphens"
NAMES = f"expected {NAME}, or a list of such names without repeats"
LIST = "expected a list of one or more names without repeats"
WHO = "expected a list of one or more names"
DEVICE = 'expected "cpu" or "cuda"'
EVIDENCE = 'expected "architecture", "operations" or "context"'
SOURCE = 'expected a list of one or more { document = "...", section = "..." }'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # unknown and missing keys
        (
            EXPECTATION,
            "faster_than_pct = 1",
            f"hypothesis[0].faster_than_pct = 1: {UNKNOWN}; did you mean 'faster_than_percent'? {KEYS}",
        ),
        (
            "workloads =",
            "workload =",
            f"hypothesis[0].workload = ['prefill', 'decode']: {UNKNOWN}; did you mean 'workloads'? {KEYS}",
        ),
        # what only a run may note
        (EXPECTATION, EXPECTATION + "\nleft_out = 2", f"hypothesis[0].left_out = 2: {UNKNOWN} {KEYS}"),
        ("title =", "titel =", f"titel = 'One file is faster': unknown key; did you mean 'title'? {TOP_KEYS}"),
        ("title =", "titel =", "title is missing, expected a short text"),
        ('section = "Speed"', 'page = "Speed"', "source[0].page = 'Speed': unknown key (keys here: document, section)"),
        ('section = "Speed"', 'page = "Speed"', "source[0].section is missing, expected the heading of a section"),
        ('variant = "single"\n', "", f"hypothesis[0].variant is missing, expected {NAME}"),
        ('metric = "time"\n', "", f"hypothesis[0].metric is missing, expected {METRIC}"),
        ("assumes = []\n", "", "assumes is missing, expected a list of texts (it may be empty)"),
        # words that must be one of a few
        (
            '"architecture"',
            '"architectur"',
            f"hypothesis[0].evidence = 'architectur', {EVIDENCE}; did you mean 'architecture'?",
        ),
        ('"architecture"', '"x"', f"hypothesis[0].evidence = 'x', {EVIDENCE}"),
        ('"time"', '"times"', f"hypothesis[0].metric = 'times', expected {METRIC}; did you mean 'time'?"),
        # expectations
        (EXPECTATION, 'device = "gpu"', f"hypothesis[0].device = 'gpu', {DEVICE}; did you mean 'cpu'?"),
        (EXPECTATION, "", f"hypothesis[0]: {ONE_OF} none"),
        (EXPECTATION, EXPECTATION + "\nratio = [2, 3]", f"hypothesis[0]: {ONE_OF} faster_than_percent and ratio"),
        (EXPECTATION, "faster_than_percent = -1", f"hypothesis[0].faster_than_percent = -1, {PERCENT}"),
        (EXPECTATION, "faster_than_percent = true", f"hypothesis[0].faster_than_percent = True, {PERCENT}"),
        (EXPECTATION, 'slower_than_percent = "5"', f"hypothesis[0].slower_than_percent = '5', {PERCENT}"),
        (EXPECTATION, "slower_than_percent = nan", f"hypothesis[0].slower_than_percent = nan, {PERCENT}"),
        (EXPECTATION, "same_within_percent = inf", f"hypothesis[0].same_within_percent = inf, {ABOVE_0}"),
        (EXPECTATION, "same_within_percent = 0", f"hypothesis[0].same_within_percent = 0, {ABOVE_0}"),
        (
            EXPECTATION,
            "same_within_percent = 1e-323",
            "hypothesis[0]: same_within_percent is too narrow or too large to compute with",
        ),
        (EXPECTATION, "ratio = [3, 2]", f"hypothesis[0].ratio = [3, 2], {RATIO}"),
        (EXPECTATION, "ratio = [0, 2]", f"hypothesis[0].ratio[0] = 0, {RATIO}"),
        (EXPECTATION, "ratio = [2]", f"hypothesis[0].ratio = [2], {RATIO}"),
        (EXPECTATION, "ratio = 2", f"hypothesis[0].ratio = 2, {RATIO}"),
        (EXPECTATION, 'ratio = "2-3x"', f"hypothesis[0].ratio = '2-3x', {RATIO}"),
        (EXPECTATION, "gain_percent = [6, 11, 12]", f"hypothesis[0].gain_percent = [6, 11, 12], {GAIN}"),
        (EXPECTATION, "gain_percent = [11, 6]", f"hypothesis[0].gain_percent = [11, 6], {GAIN}"),
        (EXPECTATION, "gain_percent = [-100, 6]", f"hypothesis[0].gain_percent[0] = -100, {GAIN}"),
        # names
        ('id = "one-file"', 'id = "One file"', f"id = 'One file', {ID}"),
        ('id = "one-file"', "id = 3", f"id = 3, {ID}"),
        ('"single"', '"many"', 'hypothesis[0]: variant and baseline are both "many": there is nothing to compare'),
        ('"single"', '"a b"', f"hypothesis[0].variant = 'a b', expected {NAME}"),
        ('"many"', '"a b"', f"hypothesis[0].baseline = 'a b', {NAMES}"),
        ('"many"', '["a", "a"]', f"hypothesis[0].baseline = ['a', 'a'], {NAMES}"),
        ('"many"', "[]", f"hypothesis[0].baseline = [], {NAMES}"),
        ('"many"', "7", f"hypothesis[0].baseline = 7, {NAMES}"),
        ('["prefill", "decode"]', '"prefill"', f"hypothesis[0].workloads = 'prefill', {LIST}"),
        ('["prefill", "decode"]', '["p", "p"]', f"hypothesis[0].workloads = ['p', 'p'], {LIST}"),
        ('"decode"]', "3]", f"hypothesis[0].workloads[1] = 3, expected {NAME}"),
        ('["TEAM-1", "TEAM-2"]', '"TEAM-1"', f"who = 'TEAM-1', {WHO}"),
        ('["TEAM-1", "TEAM-2"]', "[]", f"who = [], {WHO}"),
        ('["TEAM-1", "TEAM-2"]', '[" "]', "who[0] = ' ', expected a name"),
        ("assumes = []", "assumes = [1]", "assumes[0] = 1, expected a text"),
        ("assumes = []", 'assumes = "none"', "assumes = 'none', expected a list of texts (it may be empty)"),
        ('[{ document = "Notes", section = "Speed" }]', '["Notes"]', f"source[0] = 'Notes', {SOURCE}"),
        # tables
        ("[[hypothesis]]", "[[hypotheses]]", f"hypothesis is missing, expected {TABLES}"),
        ("[[hypothesis]]", "[hypothesis]", f", expected {TABLES}"),
        ("[[hypothesis]]", "hypothesis = []\n[x]", f"hypothesis = [], expected {TABLES}"),
        ("[[hypothesis]]", "hypothesis = [3]\n[x]", f"hypothesis[0] = 3, expected {TABLES}"),
        # syntax
        ('"One file is faster"', '"One file', ":2:18: not valid TOML: Illegal character '\\n'"),
        (
            "assumes = []",
            "assumes = []]",
            ":6:13: not valid TOML: Expected newline or end of document after a statement",
        ),
        (EXPECTATION, "ratio = [2,\n  3", ":17:1: not valid TOML: Unclosed array"),
        ('title = "', 'id = "', ":2:26: not valid TOML: Cannot overwrite a value"),
        (EXPECTATION, "ratio = " + "[" * 5000, "not valid TOML: nested too deeply"),
    ],
)
@pytest.mark.whole
def test_a_fault_is_named_with_its_place_its_value_and_what_was_expected(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    assert any(problem == message or (message[0] in ":," and message in problem) for problem in found), found


def test_one_fault_is_told_once(tmp_path: Path) -> None:
    for old, new in [(EXPECTATION, "ratio = [3]"), ('"architecture"', '"x"'), ('"many"', '"a b"')]:
        assert len(problems(tmp_path, GOOD.replace(old, new))) == 1


def test_all_faults_of_all_files_are_told_together(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("title", "titel").replace('"time"', '"tiem"'), "a.toml")
    written(tmp_path, GOOD.replace('"one-file"', '"other"'), "b.toml")
    written(tmp_path, "id = ", "c.toml")
    with pytest.raises(ClaimError) as caught:
        load_claims(tmp_path)
    assert [problem.split(": ")[0].removeprefix(str(tmp_path)) for problem in caught.value.problems] == [
        "/a.toml", "/a.toml", "/a.toml", "/c.toml:1:6",
    ]  # fmt: skip


WORKLOADS = '["prefill", "decode"]'
DEEP = "a key of more than 50 parts"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (EXPECTATION, f"gain_percent = [6, {'9' * 5000}]", "not valid TOML: a number of too many digits"),
        (EXPECTATION, f"gain_percent = 0x{'f' * 5000}", "gain_percent = a number of 20,000 bits, expected [low, "),
        (EXPECTATION, "ratio = { " + ".".join("a" * 5000) + " = 1 }", f"not valid TOML: {DEEP}"),
        (EXPECTATION, "ratio = " + "{ a = " * 60 + "1" + " }" * 60, "not valid TOML: nested too deeply"),
        ("[[hypothesis]]", f"[{'.'.join('a' * 5000)}]", f":9:2: not valid TOML: {DEEP}"),
        (EXPECTATION, EXPECTATION + "\n[[hypothesis]]\nmetric = 1\n" * 5000, "5,001 entries, expected at most"),
        (WORKLOADS, str([f"w{i}" for i in range(5000)]), "hypothesis[0].workloads: has 5,000 entries, expected at"),
        ("assumes = []", f'assumes = []\n"a\\n\\u2028b{"y" * 5000}" = 1', "unknown key"),
        ("assumes = []", "assumes = []\n#" + "x" * SMALL_BYTES, "expected at most 262,144"),
    ],
    ids=lambda value: "",
)  # fmt: skip
def test_what_is_too_long_or_too_deep_is_told_in_one_short_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ClaimError) as caught:
        read_claim(path)
    [line] = caught.value.problems
    assert line.startswith(str(path)) and told in line and len(line.splitlines()) == 1 and len(line) < 1200


def test_a_stored_claim_nested_deep_is_told_as_well() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ClaimError, match=r"here: title = \[\[\["):
        check_claim({"title": deep}, "here")


def test_of_a_claim_with_hundreds_of_faults_the_first_are_told(tmp_path: Path) -> None:
    odd = "\n".join(f"key{number} = 1" for number in range(500))
    told = problems(tmp_path, GOOD.replace('title = "One file is faster"', odd))
    assert len(told) == MOST_FAULTS + 1 and told[-1] == "and 481 more faults"


TWO_PARTS = GOOD + GOOD[GOOD.index("\n[[hypothesis]]") :]


def test_parts_need_different_labels(tmp_path: Path) -> None:
    assert problems(tmp_path, TWO_PARTS) == ['hypothesis[0] has no "part": with several, each needs a label']
    both = TWO_PARTS.replace("evidence =", 'part = "same"\nevidence =')
    assert problems(tmp_path, both) == ['hypothesis[1].part = "same" is there twice']
    named = both.replace('part = "same"', 'part = "first"', 1)
    claim = read_claim(written(tmp_path, named))
    assert [hypothesis.part for hypothesis in claim.hypothesis] == ["first", "same"]
    assert len(list(claim.comparisons())) == 4 and claim.names() == ("single", "many")


def test_an_id_is_given_once(tmp_path: Path) -> None:
    written(tmp_path, GOOD, "a.toml")
    second = written(tmp_path, GOOD, "b.toml")
    with pytest.raises(ClaimError) as caught:
        load_claims(tmp_path)
    assert str(caught.value) == f'{second}: id = "one-file": a.toml has it already; an id is given once'


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'id = "a"\ntitle = "\xff"\n')
    with pytest.raises(ClaimError) as caught:
        load_claims(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'a.toml'}:2:10: not UTF-8 text, which TOML has to be"
    (tmp_path / "a.toml").unlink()
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(ClaimError, match=r"a\.toml: cannot be read \(Is a directory\)"):
        load_claims(tmp_path)


def test_a_folder_without_claims(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ClaimError) as caught:
            load_claims(folder)
        assert str(caught.value) == f"{folder}: no claims here: expected one or more .toml files"


def test_a_table_from_elsewhere_is_checked_the_same_way() -> None:
    with pytest.raises(ClaimError, match=r"claims\.json\[0\] = \[\], expected a table of keys"):
        check_claim([], "claims.json[0]")
    with pytest.raises(ClaimError, match=r"claims\.json\[0\]: id is missing"):
        check_claim({}, "claims.json[0]")


def test_a_stored_claim_outlives_its_metric(tmp_path: Path) -> None:
    """The part says so, and the others are as they were; in a claim file it is a fault."""
    parts = [{"part": "gone", "metric": "loading", "of": "cold"}, {"part": "kept", "metric": "none", "reason": "r"}]
    table = SHIPPED["streaming"].stored() | {"hypothesis": parts}
    run = RunFolder.create(tmp_path / "run")
    run.write_json("claims.json", [table])
    [claim] = stored_claims(run)
    gone, kept = claim.hypothesis
    assert (gone.part, gone.describe(), kept.part) == ("gone", "", "kept")
    assert gone.title() == 'none: this version has no metric "loading"'
    with pytest.raises(ClaimError, match="metric = 'loading', expected one of"):
        check_claim(table, "c.toml")


# -- choosing ------------------------------------------------------------------------------------------------------


def test_select_takes_claims_by_id(tmp_path: Path) -> None:
    for name in ("alpha", "beta", "gamma"):
        written(tmp_path, GOOD.replace("one-file", name), f"{name}.toml")
    claims = load_claims(tmp_path)
    assert select(claims, None) == select(claims, []) == claims
    assert [claim.id for claim in select(claims, ["gamma", "alpha", "alpha"])] == ["alpha", "gamma"]
    with pytest.raises(ClaimError) as caught:
        select(claims, ["alpha", "Gama", "zzzzzz"])
    assert caught.value.problems == (
        "no claim 'Gama'; did you mean 'gamma'? (claims: alpha, beta, gamma)",
        "no claim 'zzzzzz' (claims: alpha, beta, gamma)",
    )


# -- the claims that are shipped -----------------------------------------------------------------------------------

SHIPPED = {claim.id: claim for claim in load_claims(ROOT / "claims")}


@pytest.mark.whole
def test_no_claim_that_ships_asks_for_a_metric_that_is_not_there() -> None:
    """All are read as strictly as a user's, which `load_claims` does not: a slice may be taken away."""
    paths = [path for path in (ROOT / "claims").rglob("*.toml") if path.name != DISPUTE_FILE]
    assert len(paths) > len(SHIPPED) and all(read_claim(path).hypothesis for path in paths)


EXPECTED = {
    "already-optimised": ["at most 10 % faster"] * 6,
    "claims-inflated-20-50x": ["2-10 % faster"] * 2,
    "cpu-only": ["more than 5 % faster"] * 2,
    "compiling-levels": ["same within ±5 %", "more than 1 % faster"],
    "decode-mask-gain": ["more than 5 % faster"],
    "gpu-kernels": ["more than 5 % faster"] * 2,
    "gain-holds": ["more than 10 % faster"] * 4,
    "int8-weights-faster": ["more than 10 % faster"] * 2,
    "integrated-pipeline": ["more than 5 % faster"],
    "is-causal-faster": ["more than 1 % faster"],
    "kernels-2x-3x": ["2-3x"] * 3,
    "kernels-mask-caching-6-11": ["6-11 % faster"] * 3,
    "kernels-one-cache": ["more than 5 % faster"] * 2,
    "kernels-one-file": ["more than 5 % faster"],
    "kernels-own-layers-slower": ["more than 1 % slower"] * 3,
    "kv-cache-optimal": ["at most 5 % faster"],
    "left-to-gain": ["more than 1 % faster"] * 9,
    "lookup-slower-than-creation": ["more than 1 % slower"],
    "mask-caching-10-30-overall": ["10-30 % faster"],
    "enable-gqa-faster": ["more than 1 % faster"],
    "fast-is-level": ["at most 5 % faster"] * 6,
    "mask-caching-6-11": ["6-11 % faster"] * 7,
    "mask-caching-helps": ["more than 5 % faster"] * 3,
    "mask-time-halved": ["2-5x"],
    "own-layers-slower": ["more than 1 % slower"] * 4,
    "paged-cache-costs": [*["more than 5 % slower"] * 4, "same within ±5 %"],
    "python-calls-negligible": ["same within ±5 %"] * 2,
    "refactor-2x-3x": ["2-3x"] * 10,
    "rope-3x-5x": ["3-5x"] * 3,
    "rope-cache-no-benefit": ["same within ±5 %"],
    "rounded-cache-faster": ["more than 1 % faster"] * 4,
    "static-cache-faster": ["more than 1 % faster"] * 3,
    "single-file-faster": ["more than 5 % faster"],
    "targeted-beats-refactor": ["at most 5 % faster"] * 2,
    "unified-cache-faster": ["more than 5 % faster"] * 2,
}


def test_the_claims_of_the_dispute_are_there() -> None:
    timed = {
        id: [h.region.describe() for h in claim.hypothesis if isinstance(h, TimeHypothesis)]
        for id, claim in SHIPPED.items()
        if any(isinstance(h, TimeHypothesis) for h in claim.hypothesis)
    }
    assert timed == EXPECTED
    assert {*SHIPPED} == {path.stem for path in (ROOT / "claims").glob("*.toml") if path.name != DISPUTE_FILE}


@pytest.mark.parametrize("claim", SHIPPED.values(), ids=SHIPPED)
def test_a_claim_stands_where_it_could_hold_and_where_it_could_not(claim: Claim) -> None:
    whole = [name for name in claim.workloads() if name.startswith(("prefill-", "decode-")) and "-gqa-" not in name]
    both = claim.id != "arch-or-ops"  # sixteen cells at 7B width would take as long as all else
    if claim.id == "layers-add-up":  # of whole models, and of a layer of each
        assert {name.split("-")[1] for name in whole} == {"tinyllama", "7b"}
        return
    assert not whole or {"15m", "7b"} & {name.split("-")[1] for name in whole} == ({"15m", "7b"} if both else {"15m"})


def test_layout_and_ownership_are_claimed_on_equal_operations_only() -> None:
    kinds = {id: {getattr(h, "evidence", None) for h in claim.hypothesis} for id, claim in SHIPPED.items()}
    architecture = {id for id, kind in kinds.items() if "architecture" in kind}
    assert architecture == {
        "left-to-gain", "python-calls-negligible", "rope-cache-no-benefit", "single-file-faster",
        "unified-cache-faster",
    }  # fmt: skip
    mixed = {"left-to-gain", "unified-cache-faster"}  # some of their parts change operations, and say so
    assert all(kinds[id] <= {None, "architecture"} for id in architecture - mixed)
    assert all(kinds[id] == {"context"} for id in kinds if id == "own-layers-slower" or id.startswith("kernels-"))


@pytest.mark.whole
def test_reading_claims_imports_no_torch() -> None:
    code = """
import sys
from llama_workbench.harness.metrics.registry import names
sys.exit("torch" in sys.modules or "share" not in names() or "torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
