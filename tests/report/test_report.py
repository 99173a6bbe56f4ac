"""Verdicts as text: everything that a reader needs is there, on any terminal, and no name can break the page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.harness.claims.reading import load_dispute
from llama_workbench.harness.evidence.effect import AT_A_LIMIT, TOO_LONG
from llama_workbench.harness.report import answer as answers
from llama_workbench.harness.report.answer import Answer, words_of_sides
from llama_workbench.harness.report.markdown import ReadmeError, markdown_table, update_file
from llama_workbench.harness.report.outcome import (
    command_of,
    cost_text,
    counted,
    found_text,
    outcome,
    row_words,
    tally_text,
    unmet,
    verdict_text,
)
from llama_workbench.harness.report.terminal import console, show, verdict_report
from llama_workbench.harness.report.text import (
    Bounds,
    digits,
    duration_text,
    effect_text,
    gain_text,
    run_notes,
    span_text,
)
from llama_workbench.harness.report.workload_names import told_apart
from llama_workbench.harness.spec.words import Word
from llama_workbench.harness.store.files import VERDICTS
from llama_workbench.harness.store.folder import RunFolder
from llama_workbench.harness.store.forms import Fault
from llama_workbench.harness.store.schema import manifest_of
from llama_workbench.harness.store.verdict_schema import Effect, Ends, Verdict
from tests.runs import write_run
from tests.verdicts import a_verdict, an_effect

DISPUTE = load_dispute()

BEGIN, END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("report") / "first")


def answer(verdicts: Sequence[Verdict]) -> Answer:
    """By the questions that ship."""
    return answers.answer(verdicts, DISPUTE)


def answer_markdown(verdicts: Sequence[Verdict]) -> str:
    return answers.answer_markdown(verdicts, DISPUTE)


def headlines(verdicts: Sequence[Verdict]) -> str:
    return answers.headlines(verdicts, DISPUTE)


def printed(verdicts: Sequence[Verdict], manifest: dict[str, Any], width: int = 100) -> str:
    out = io.StringIO()
    show(verdict_report(verdicts, manifest_of(manifest)), console(out, width=width))
    return out.getvalue()


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_an_effect_in_one_line() -> None:
    assert effect_text(an_effect()) == "1.013× [1.009, 1.018]"
    assert effect_text(an_effect(ratio=12.345, low=11.0, high=240.4)) == "12.35× [11.00, 240]"
    assert effect_text(an_effect(low=None, high=None)) == "1.013× [no interval yet]"
    assert effect_text(an_effect(high=None)) == "1.013× [1.009, open]"
    assert effect_text(an_effect(ratio=None, low=None, high=None)) == "no rounds"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (3.14, "3.1 s"), (59.4, "59 s"), (59.7, "1 min"), (510, "8 min 30 s"), (7500, "2 h 5 min")],
)
def test_seconds_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# -- the terminal ------------------------------------------------------------------------------------------------------


def test_every_verdict_word_occurs_with_its_effects(run: RunFolder) -> None:
    verdicts, manifest = run.read(VERDICTS), run.read_manifest()
    text = printed(verdicts, manifest)
    assert {verdict.verdict for verdict in verdicts} == {
        "supported",
        "refuted",
        "depends",
        "inconclusive",
        "not measurable here",
    }
    for verdict in verdicts:
        word = re.escape(verdict_text(verdict))
        assert re.search(rf"^{word} · {re.escape(verdict.claim)}.* · {', '.join(verdict.who)}", text, re.M)
        assert f"claimed: {verdict.claimed}\n" in text
        for effect in verdict.effects:
            numbers = re.escape(effect_text(effect))
            word = effect.verdict
            line = rf"^ +{effect.workload} +{numbers} +{word} +40 +{effect.seconds:.1f} s$"
            assert re.search(line, text, re.M), line
            assert f"{effect.baseline} → {effect.variant}\n" in text
    assert "not decided: the interval lies on both sides of 1.085" in text
    assert "supported on prefill-15m-t128; refuted on prefill-7b-1layer-t128" in text
    assert "\ninconclusive ·" not in text
    assert "Identical code: no difference found in 7 checks; all within " in text
    assert "7 verdicts: 1 supported, 3 refuted, 1 depends, 1 inconclusive, 1 not measurable here" in text


@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_terminal_without_breaking_an_effect(run: RunFolder, width: int) -> None:
    lines = printed(run.read(VERDICTS), run.read_manifest(), width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert sum(bool(re.search(r"× \[.*\] .* s$", line)) for line in lines) == 11
    assert not any(line != line.rstrip() for line in lines)


def test_a_narrow_terminal_loses_nothing(run: RunFolder) -> None:
    """Lines are broken, words may be; no character of a name is dropped."""
    text = "".join(printed(run.read(VERDICTS), run.read_manifest(), 40).split())
    for name in ("prefill-7b-1layer-t128", "mask-caching-exactly-8.5", "team005_proposal"):
        assert name in text


def test_colour_never_stands_alone(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    for variable in ("NO_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(variable, raising=False)
    content = verdict_report(run.read(VERDICTS), run.manifest())
    coloured = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard", highlight=False)
    with coloured.capture() as captured:
        coloured.print(content)
    text = captured.get()
    assert "\x1b[1;31mrefuted*\x1b[0m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "\n".join(line.rstrip() for line in plain.splitlines()) == printed(
        run.read(VERDICTS), run.read_manifest()
    ).rstrip("\n")


def test_names_are_no_markup_and_no_control_codes() -> None:
    verdict = a_verdict(
        an_effect(variant="[red]v[/red]", workload="w[/]", notes=["raised \x1b[2J\nRuntimeError: [bold]x"]),
        claim="c[link=x]",
        who=["[/nonsense]"],
    )
    manifest = {"excluded": [{"variant": "[b]", "reason": "Traceback:\n\n  died\x07 [x]"}]}
    text = printed([verdict], manifest)
    for literal in (
        "[red]v[/red]",
        "w[/]",
        "c[link=x]",
        "[/nonsense]",
        "RuntimeError: [bold]x",
        "[b]: Traceback: died [x]",
    ):
        assert literal in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_what_was_left_out_and_how_the_run_ended_is_told(run: RunFolder) -> None:
    manifest = run.read_manifest() | {"status": "interrupted", "excluded": [{"variant": "mine", "reason": "gave NaN"}]}
    manifest["experiments"][0]["excluded"] = [{"variant": "slow", "reason": "took longer than 60 s"}]
    text = printed(run.read(VERDICTS), manifest)
    assert "left out: mine: gave NaN\n" in text
    assert "left out: slow on prefill-15m-t128: took longer than 60 s\n" in text
    assert "This run was interrupted: only its finished rounds are judged.\n" in text


HANGS = "slow: took longer than 60 s"


def test_why_a_side_was_left_out_is_told_once_at_the_end(run: RunFolder) -> None:
    manifest = run.read_manifest()
    manifest["experiments"][0]["excluded"] = [{"variant": "slow", "reason": "took longer than 60 s"}]
    reason = {"verdict": "not evidence", "cause": "excluded", "reason": HANGS}
    workload = manifest["experiments"][0]["workload"]["name"]
    verdict = a_verdict(an_effect(variant="slow", workload=workload, **reason), reason=f"{workload} ({HANGS})")
    text = printed([verdict], manifest)
    assert text.count("took longer than 60 s") == 1 and "! slow is left out\n" in text
    assert text.splitlines()[-1] == f"left out: slow on {workload}: took longer than 60 s"
    # Where run.json does not name the side, as of a pass, the effect says it.
    assert "! slow: took longer than 60 s\n" in printed([verdict], {})


def test_what_leaves_all_of_a_workload_out_names_that(run: RunFolder) -> None:
    manifest = run.read_manifest()
    experiment = manifest["experiments"][0]
    names = [*experiment["variants"], "function_yardstick"]
    experiment["excluded"] = [{"variant": name, "reason": "give --budget 9"} for name in names]
    text = printed([], manifest)
    assert f"left out: {experiment['workload']['name']}: give --budget 9\n" in text


def test_no_verdicts_and_an_empty_manifest() -> None:
    assert "No verdicts: nothing was measured." in printed([], {})


def test_a_warning_that_several_effects_share_is_told_once() -> None:
    effects = [an_effect(workload=name, verdict="not evidence", reason="op traces differ") for name in "abc"]
    assert printed([a_verdict(*effects)], {}).count("! op traces differ\n") == 1
    one_more = an_effect(workload="d", reason="mine alone")
    text = printed([a_verdict(*effects, one_more)], {})
    assert text.count("! op traces differ (on a, b, c)\n") == 1
    assert text.index("! mine alone") > text.index(" d ")


def test_what_the_reason_says_is_not_repeated_for_each_effect() -> None:
    effects = [an_effect(workload=name, reason="the interval includes 1.01", notes=[f"{name} is hot"]) for name in "ab"]
    reason = "not decided: the interval includes 1.01; about 20 s more would decide a"
    text = printed([a_verdict(*effects, verdict="inconclusive", reason=reason)], {})
    assert text.count("the interval includes 1.01") == 1 and f"  {reason}\n" in text
    assert "! a is hot\n" in text and "! b is hot\n" in text
    assert reason not in printed([a_verdict(*effects, reason=reason)], {})


def test_the_same_effects_are_not_printed_twice() -> None:
    verdicts = [a_verdict(an_effect(), part=part) for part in ("one", "other")]
    text = printed(verdicts, {})
    assert text.count("1.013×") == 1 and "effects: those of a-claim (one)\n" in text


@pytest.mark.parametrize(("encoding", "is_terminal"), [("ascii", False), ("latin-1", True)])
def test_what_cannot_write_arrows_gets_plain_letters(run: RunFolder, encoding: str, is_terminal: bool) -> None:
    from rich.console import Console

    raw = io.BytesIO()
    out = Console(file=io.TextIOWrapper(raw, encoding), force_terminal=is_terminal, width=100)
    show(verdict_report(run.read(VERDICTS), run.manifest()), out)
    out.file.flush()
    text = raw.getvalue().decode(encoding)
    assert "team006_before -> team006_after" in text and re.search(r"1\.0\d\dx \[", text)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([(53.5, 425.0), (101.0, None), (157.0, None)], "at least 53.5 times"),
        ([(2.0, 12.5), (60.0, 80.0)], "at most 12.5 times or at least 60 times"),
        ([(None, 12.5), (None, 3.0)], "at most 12.5 times"),
        ([(2.0, 12.5), (3.0, 4.0)], "at most 12.5 times"),
    ],
)
def test_what_lies_outside_on_all_rows_is_told_by_the_ends_next_to_the_claim(ends: list[Any], told: str) -> None:
    effects = [an_effect(value=1.0, low=low, high=high, unit="times", verdict="refuted") for low, high in ends]
    assert found_text(a_verdict(*effects, verdict="refuted", region={"low": 20.0, "high": 50.0})) == told


def test_no_rise_at_all_is_a_fall() -> None:
    assert span_text(Bounds(-61.9, -57.0, "% rise"), "at most") == "at least 57 % fall"
    assert span_text(Bounds(-61.9, -57.0, "% rise"), "between") == "57 to 61.9 % fall"
    assert span_text(Bounds(-3.0, 6.0, "% rise"), "at most") == "at most 6 % rise"
    assert gain_text(0.25, 0.4) == "2.5 to 4 times the time" and gain_text(0.6, 0.8) == "25 to 67 % slower"


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ([(3.2, 4.0), (5.0, 9.0)], "understated"),
        ([(3.2, 4.0), (0.9, 1.1)], "refuted"),
        ([(0.9, 1.1)], "refuted"),
        ([(3.2, None)], "understated"),
    ],
)
def test_a_claim_that_says_less_than_the_truth_is_called_so(
    effects: list[tuple[float, float | None]], said: str
) -> None:
    rows = [an_effect(verdict="refuted", ratio=low, low=low, high=high) for low, high in effects]
    assert outcome(a_verdict(*rows, verdict="refuted", low=2.0, high=3.0)) == said
    assert outcome(a_verdict(*rows, verdict="refuted", low=None, high=0.5)) == "refuted", "no range was claimed"
    assert outcome(a_verdict(*rows, verdict="refuted", low=0.99, high=1.01)) == "refuted", "no gain was claimed"
    assert outcome(a_verdict(*rows, verdict="refuted", low=2.0, high=3.0, small=True)) == "refuted", "it is not small"
    half = a_verdict(*rows, an_effect(verdict="inconclusive"), verdict="inconclusive", low=2.0, high=3.0)
    assert outcome(half) == f"{said} on {len(rows)} of {len(rows) + 1}, rest inconclusive"


def test_a_comparison_with_several_answers_is_counted_and_not_called_dependent() -> None:
    effects = [an_effect(verdict=word) for word in ("faster", "faster", "same")]
    assert outcome(a_verdict(*effects, claim="ad-hoc", verdict="depends")) == "faster on 2, the same on 1"
    more = a_verdict(*effects, an_effect(verdict="inconclusive"), claim="ad-hoc", verdict="depends")
    assert outcome(more) == "faster on 2, the same on 1 of 4, rest inconclusive"


def test_an_open_grid_is_answered_side_by_side() -> None:
    told = {"operations": ["faster", "faster"], "architecture": ["inconclusive", "same"]}
    places = ("prefill-15m-t128", "decode-15m-c64", "prefill-15m-t8")
    sides = {
        side: [an_effect(verdict=word, workload=place) for word, place in zip(words, places, strict=False)]
        for side, words in told.items()
    }
    assert words_of_sides(sides) == "Operations yes; architecture inconclusive on prefill, no on decode"
    sides["architecture"].append(an_effect(verdict="same", workload=places[2]))
    assert words_of_sides(sides) == "Operations yes; architecture no on 2 of 3, rest inconclusive"
    assert words_of_sides({"architecture": sides["architecture"][:1]}) == "Architecture inconclusive"


def test_workloads_are_told_in_as_few_words_as_tell_them_apart() -> None:
    assert told_apart(["prefill-15m-t128", "decode-15m-c64"]) == ["prefill", "decode"]
    assert told_apart(["decode-15m-c64", "decode-7b-1layer-c1"]) == ["decode, 15M", "decode, one 7B layer"]
    prompts = ["prefill-15m-t128", "prefill-15m-t8"]
    assert told_apart(prompts) == ["128 tokens", "8 tokens"]
    assert told_apart([*prompts, "prefill-7b-1layer-t8"])[1:] == ["8 tokens, 15M", "8 tokens, one 7B layer"]
    assert told_apart([*prompts[:1], *prompts[:1]]) == ["prefill"] * 2
    assert told_apart(["prefill-15m-t128", "mine"]) == ["prefill-15m-t128", "mine"] and told_apart([]) == []


def test_a_run_says_how_much_of_its_time_was_timed(run: RunFolder) -> None:
    manifest = run.read_manifest()
    experiments = [{**each, "seconds": 20.0, "sampled_seconds": 9.0} for each in manifest["experiments"]]
    [line] = [
        line
        for line in run_notes([], manifest_of(manifest | {"experiments": experiments}))
        if line.startswith("Measured on")
    ]
    assert line.endswith(" of rounds (45 % inside timed samples).")


def test_a_report_says_how_many_verdicts_may_be_wrong(run: RunFolder) -> None:
    verdicts, manifest = run.read(VERDICTS), run.read_manifest()
    words = ("supported", "refuted", "depends", "inconclusive")
    tried = [verdict for verdict in verdicts if verdict.verdict in words]
    text = " ".join(run_notes(verdicts, manifest_of(manifest)))
    wrong = f"of the {len(tried)} that were tried, {len(tried) / 100:.2g} on average at worst"
    assert f"wrong with at most 1 % probability: {wrong}" in text, "open ones could have come out wrong, too"
    assert "for another run of the same command" in text
    alone = [replace(verdict, together=False) for verdict in verdicts]
    together = [replace(alone[0], together=True), *alone[1:]]
    unmarked, marked = (" ".join(run_notes(each, manifest_of(manifest))) for each in (alone, together))
    assert "also hold together" not in unmarked and "Those marked * (1) also hold together" in marked


# -- the README --------------------------------------------------------------------------------------------------------


def test_the_readme_table_has_one_row_a_verdict(run: RunFolder) -> None:
    verdicts, manifest = run.read(VERDICTS), run.read_manifest()
    text = markdown_table(
        verdicts, manifest_of(manifest), command="workbench judge results/baselines/main --write README.md"
    )
    table, notes = text.split("\n\n", 1)
    lines = table.splitlines()[2:]
    rows = [row for row in lines if row.startswith("| `")]
    headed = [row for row in lines if row not in rows]
    assert len(rows) == len(verdicts) and len(headed) == len({*headed}) > 1
    assert all(re.fullmatch(r"\| \*\*.*\*\* \|(  \|){5}", row) for row in headed)
    assert headed[-1].startswith("| **Of none of these questions**")
    assert all(row.count("|") == 7 for row in rows)
    [depends] = [row for row in rows if "mask-caching-helps" in row]
    low, high = sorted(verdicts[2].effects, key=lambda effect: effect.ratio)
    assert (
        depends == "| `mask-caching-helps`: more than 1 % faster | TEAM-005, TEAM-006 | **depends**\\* | "
        f"{effect_text(low)} prefill-7b-1layer-t128 | {effect_text(high)} prefill-15m-t128 | 40 |"
    )
    assert "`mask-caching-6-11` (micro-op): 6-11 % faster" in table
    assert "Identical code: no difference found in 7 checks" in notes
    machine = "Simulated CPU (AVX2), 2 cores, 1 thread, torch 2.13.0+cpu, glibc 2.36, Python 3.11.7"
    assert f"Measured on {machine}, in 4 min 41 s." in notes
    assert "`workbench judge results/baselines/main --write README.md`" in notes
    assert markdown_table(verdicts, manifest_of(manifest)) == markdown_table(run.read(VERDICTS), run.manifest())


def test_nothing_can_break_out_of_a_cell() -> None:
    verdict = a_verdict(an_effect(workload="w|<script>`"), claim="c|d", who=["a\nb", "x\\|y"], claimed="<b>")
    row = markdown_table([verdict], manifest_of({})).splitlines()[2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 7
    assert "<" not in row
    assert row.count("`") == 2


def test_blocks_go_between_their_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    new = {"answer": "- new", "verdicts": "| new |\n"}
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end, with no table.\n")
    assert update_file(readme, new, check=True)
    assert "old" in readme.read_text()
    assert update_file(readme, new)
    assert readme.read_text() == f"# Title\n\n{BEGIN}\n| new |\n{END}\n\nThe end, with no table.\n"
    assert not update_file(readme, new)
    assert not update_file(readme, new, check=True)
    readme.write_bytes(f"dos\r\n{BEGIN}\r\n{END}\r\n".encode())
    readme.chmod(0o640)
    assert update_file(readme, new)
    assert readme.read_bytes() == f"dos\r\n{BEGIN}\n| new |\n{END}\r\n".encode()
    assert readme.stat().st_mode & 0o777 == 0o640
    readme.write_text("<!-- answer:begin --><!-- answer:end -->")
    assert update_file(readme, new)
    assert readme.read_text() == "<!-- answer:begin -->\n- new\n<!-- answer:end -->"


@pytest.mark.parametrize("text", ["no markers", f"{BEGIN} only", f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_readme_without_the_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(ReadmeError, match=r"README\.md: needs the two lines"):
        update_file(readme, {"answer": "- new", "verdicts": "| new |"})
    assert readme.read_text() == text
    with pytest.raises(ReadmeError, match="no such file"):
        update_file(tmp_path / "nothing.md", {"verdicts": ""})


# -- the answer --------------------------------------------------------------------------------------------------------

QUESTION = "Is the rewrite (one file, one cache) 2-3x faster?"
WHERE = "in PyTorch, on short prompts and in decode"
LEAD = "usual lengths, with added masks"
ELSEWHERE = " ".join(each.text for each in DISPUTE.question[0].beside if each.claim is None)
"""What stands beside the first answer, whatever was measured."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("supported", "supported"), f"0.91x to 2.34x {WHERE}: yes."),
        (("refuted", "refuted"), f"0.91x to 2.34x {WHERE}: no."),
        (
            ("refuted", "inconclusive"),
            f"At most 1.04x {WHERE} on refuted; on inconclusive 1.20x to 2.34x: no on 1 of 2, the other inconclusive.",
        ),
        (("inconclusive", "inconclusive"), "0.91x to 2.34x: inconclusive."),
        (
            ("supported", "refuted"),
            f"I{WHERE[1:]}: 0.91x to 1.04x (yes) on supported; 1.20x to 2.34x (no) on refuted: it depends.",
        ),
        (("not evidence", "not evidence"), f"0.91x to 2.34x {WHERE}: not answered."),
    ],
)
def test_the_answer_says_what_the_verdict_says(words: tuple[str, str], said: str) -> None:
    ends = ((0.98, 0.91, 1.04), (1.5, 1.2, 2.344))
    effects = [
        an_effect(workload=word, ratio=ratio, low=low, high=high, verdict=word)
        for word, (ratio, low, high) in zip(words, ends, strict=True)
    ]
    verdict = combine_words(words)
    claim = {"claim": "refactor-2x-3x", "part": LEAD, "claimed": "2-3x", "verdict": verdict}
    found = answer([a_verdict(*effects, **claim, region={"low": 2.0, "high": 3.0})])
    assert found.headline == f"{QUESTION} {said}"
    assert [line.sentence for line in found.lines] == [found.headline]


FOUND, OPEN = "0.50x to 1.50x", "{} on 1 of 2, rest inconclusive"
FOUR = ("prefill-15m-t128", "prefill-7b-1layer-t128", "decode-15m-c64", "decode-7b-1layer-c1")


@pytest.mark.parametrize(
    ("names", "words", "said"),
    [
        (FOUR, "srrr", "supported on 1, refuted on 3"),
        (FOUR, "ssrr", f"in prefill {FOUND} (yes); in decode {FOUND} (no)"),
        (FOUR, "risi", f"in decode {FOUND} ({OPEN.format('yes')}); in prefill {FOUND} ({OPEN.format('no')})"),
        (FOUR[:2], "sr", f"{FOUND} (yes) on prefill, 15M; {FOUND} (no) on prefill, one 7B layer"),
        (("a", "b", "c"), "sri", f"{FOUND} (yes) on a; {FOUND} (no) on b; {FOUND} (inconclusive) on c"),
        (FOUR, "srio", "supported on 1, refuted on 1, inconclusive on 1, no evidence on 1"),
        (("a", "b", "c", "d", "e", "f", "g", "h"), "ssssrrrr", "supported on 4, refuted on 4"),
        (("a", "a"), "sr", "supported on 1, refuted on 1"),
    ],
)
def test_where_it_depends_each_place_has_its_own_numbers(names: tuple[str, ...], words: str, said: str) -> None:
    verdicts = {"s": "supported", "r": "refuted", "i": "inconclusive", "o": "not evidence"}
    effects = [
        an_effect(workload=name, low=0.5, high=1.5, verdict=verdicts[word])
        for name, word in zip(names, words, strict=True)
    ]
    claim = {"claim": "refactor-2x-3x", "part": LEAD, "claimed": "2-3x", "verdict": "depends"}
    [line] = answer([a_verdict(*effects, **claim, region={"low": 2.0, "high": 3.0})]).lines
    placed = FOUND in said
    assert line.text == (f"{WHERE}: {said}" if placed else f"0.50x to 1.50x {WHERE}; {said}")


def test_an_open_place_says_why_it_is_open_where_its_interval_does_not() -> None:
    settled, near = an_effect(workload=FOUR[0], low=0.9, high=1.0, verdict="refuted"), FOUR[2]
    claim = {"claim": "refactor-2x-3x", "part": LEAD, "claimed": "2-3x", "verdict": "inconclusive"}
    for cause, why in (("confounded", " (0.49 % of\x1b bias)"), ("across a limit", "")):
        open_ = an_effect(
            workload=near, low=2.1, high=2.2, verdict="inconclusive", cause=cause, reason="0.49 % of\x1b bias"
        )
        [line] = answer([a_verdict(settled, open_, **claim, region={"low": 2.0, "high": 3.0})]).lines
        why = why.replace("\x1b", "")
        assert line.text == f"at most 1.00x {WHERE} on prefill; on decode 2.10x to 2.20x{why}"


def combine_words(words: tuple[str, ...]) -> str:
    if len(set(words)) == 1:
        return words[0]
    return "inconclusive" if "inconclusive" in words else "depends"


def test_the_headline_names_the_end_that_is_nearest_to_the_claim() -> None:
    claim = {"claim": "refactor-2x-3x", "part": LEAD, "verdict": "refuted"}
    below = a_verdict(an_effect(low=0.98, high=1.0187), claimed="2-3x", region={"low": 2.0, "high": 3.0}, **claim)
    assert answer([below]).headline == f"{QUESTION} At most 1.02x {WHERE}: no."
    above = a_verdict(
        an_effect(low=3.2, high=4.1, verdict="refuted"), claimed="2-3x", region={"low": 2.0, "high": 3.0}, **claim
    )
    assert answer([above]).headline == f"{QUESTION} At least 3.20x {WHERE}: yes, and more."
    quick = a_verdict(**claim, claimed="2-3x", fewer="on 2 of its 5 workloads; --all has all")
    assert answer([quick]).headline == f"{QUESTION} No.", "what is left out stands beside the verdict"
    assert quick.claimed_here == "2-3x (on 2 of its 5 workloads; --all has all)" in headlines([quick])


def test_the_first_answer_says_of_what_models_and_threads_it_is() -> None:
    claim = {"claim": "refactor-2x-3x", "part": LEAD, "verdict": "refuted", "claimed": "2-3x"}
    small, wide = (an_effect(workload=f"prefill-{shape}-t8") for shape in ("15m", "7b-1layer"))
    found = answer([a_verdict(small, wide, **claim)]).headline
    assert " (15M parameters and one 7B layer, one CPU thread): " in found
    many = a_verdict(an_effect(workload="decode-15m-c64", metric="wall time", clock="wall"), **claim)
    assert " (15M parameters): " in answer([many]).headline, "several threads, or a GPU"


def test_a_run_without_main_claims_is_summed_up() -> None:
    assert answer([]).headline == "Nothing was measured, so there is no answer." and answer([]).lines == ()
    mine = a_verdict(an_effect(), claim="mine", title="Mine is faster")
    assert answer([mine]).headline == "Mine is faster: at least 0.91 % faster: supported."
    theirs = a_verdict(an_effect(), claim="theirs", verdict="refuted", title="Theirs")
    found = answer([mine, theirs])
    assert found.headline == "Of 2 verdicts: 1 supported, 1 refuted." and len(found.lines) == 2
    pair = a_verdict(an_effect(verdict="faster"), claim="ad-hoc", verdict="faster", statement="Is v faster than b?")
    pair = replace(pair, region=Ends(0.99, 1.01))
    assert answer([pair]).headline == "Is v faster than b? 0.91 to 1.8 % faster: yes."
    asked = a_verdict(an_effect(), claim="fail-if", part="not-faster:0", statement="v is at all faster than b.")
    assert re.fullmatch(r"v is at all faster than b: .*: supported\.", answer([pair, asked]).headline)
    words = (Word.REFUTED, Word.SUPPORTED, Word.INCONCLUSIVE, Word.NOT_EVIDENCE, Word.NOT_MEASURABLE)
    told = ["passes", "passes", "inconclusive", "inconclusive", "inconclusive"]
    assert [unmet(replace(asked, verdict=word)) for word in words] == told
    still_open = replace(asked, verdict=Word.INCONCLUSIVE)
    assert answer([pair, still_open]).headline == answer([pair]).headline, "what is decided is said first"


def test_the_same_headline_opens_markdown_and_ends_the_terminal(run: RunFolder) -> None:
    verdicts, manifest = run.read(VERDICTS), run.read_manifest()
    headline = answer(verdicts).headline
    assert headline.startswith(QUESTION)
    assert answer_markdown(verdicts).startswith(f"**{headline}** {' '.join(answer(verdicts).beside)}\n\n- ")
    lines = answer(verdicts).lines
    end = [" ".join(line.split()) for line in printed(verdicts, manifest, 2000).splitlines()[-len(lines) :]]
    assert end == [line.told for line in lines] and ELSEWHERE in end[0]


def test_the_answer_draws_what_follows_from_the_widest_interval() -> None:
    share = {"unit": "%", "value": 2.0, "low": 1.0, "high": 20.0}
    claim = {"claim": "decision-rule", "part": "the review's 5 %", "claimed": "above 5 %", "verdict": "refuted"}
    follows = "so without that work a forward is at most 25.0 % faster"
    assert follows in answer([a_verdict(an_effect(**share), **claim)]).headline
    assert follows not in answer([a_verdict(an_effect(**share), **claim | {"verdict": "inconclusive"})]).headline


def open_verdict(*words: str, **more: Any) -> Verdict:
    effects = [an_effect(workload=f"w{i}", verdict=word, low=0.95, high=1.14) for i, word in enumerate(words)]
    return a_verdict(*effects, verdict="inconclusive", **more)


@pytest.mark.parametrize(
    ("verdict", "said", "tally"),
    [
        (
            open_verdict(*["refuted"] * 6, *["inconclusive"] * 3),
            "refuted on 6 of 9, rest inconclusive",
            "refuted on 6, inconclusive on 3",
        ),
        (
            open_verdict("supported", "inconclusive"),
            "supported on 1 of 2, rest inconclusive",
            "supported on 1, inconclusive on 1",
        ),
        (open_verdict("inconclusive"), "inconclusive: at most 14 % faster", ""),
        (open_verdict("inconclusive", region={"low": None, "high": 1.05}), "inconclusive: at most 14 % faster", ""),
        (open_verdict("inconclusive", region={"low": None, "high": 0.95}), "inconclusive: at most 5.3 % slower", ""),
        (
            open_verdict("inconclusive", region={"low": 0.99, "high": 1.01}),
            "inconclusive: between 5.3 % slower and 14 % faster",
            "",
        ),
        (
            a_verdict(an_effect(verdict="inconclusive", low=None, high=None), verdict="inconclusive"),
            "inconclusive: no interval yet",
            "",
        ),
        (a_verdict(*[an_effect()] * 3), "supported", "supported on all 3"),
    ],
)
def test_no_reader_is_left_with_inconclusive_alone(verdict: Verdict, said: str, tally: str) -> None:
    assert (outcome(verdict), tally_text(counted(row_words(verdict)))) == (said, tally)
    shown = (
        printed([verdict], {})
        + markdown_table([verdict], manifest_of({}))
        + headlines([verdict])
        + answer_markdown([verdict])
    )
    assert "**inconclusive**" not in shown and said in shown


@pytest.mark.parametrize(
    ("seconds", "said", "does"),
    [
        ([240.0], "about 4 min more, enough in 9 of 10 cases", "to decide it"),
        ([20.0, 240.0], "about 4 min more, enough in 9 of 10 cases", "to decide it"),
        ([1.0], "less than 10 s more, enough in 9 of 10 cases", "to decide it"),
        ([None], AT_A_LIMIT, "to measure it again"),
        ([20_000.0], TOO_LONG, "to measure it again"),
        (
            [240.0, None],
            f"about 4 min more for 1 of 2 inconclusive rows, enough in 9 of 10 cases; the rest: {AT_A_LIMIT}",
            "to decide it",
        ),
        ([], "", "to measure it again"),
    ],
)  # fmt: skip
def test_what_an_open_verdict_would_cost(seconds: list[float | None], said: str, does: str) -> None:
    open_ = [an_effect(verdict="inconclusive", seconds_more=each) for each in seconds]
    verdict = a_verdict(*(open_ or [an_effect(verdict="inconclusive")]), verdict="inconclusive", claim="it")
    assert cost_text(verdict) == said
    manifest = {"command": ["pytest", "--benchmark", "--workbench-device=cuda", "--claims", "it"], "seed": 3}
    again = "pytest --benchmark --claims it --device cuda"
    text = " ".join(printed([verdict], manifest, 400).split())
    assert f"{does}{f' ({said})' if said else ''}: {again}" in text
    assert f"`{again}`" in markdown_table([verdict], manifest_of(manifest))


def test_the_command_repeats_what_the_run_chose() -> None:
    pair = a_verdict(an_effect(verdict="same"), claim="ad-hoc", verdict="same")
    run = {"seed": 0, "experiments": [{"workload": {"name": "w"}, "variants": []}]}
    models = {**run, "command": ["pytest", "--benchmark", "--compare", "b", "v", "--threads", "2"]}
    assert command_of(pair, manifest_of(models)) == "pytest --benchmark --compare b v --workloads w --threads 2"
    functions = {**run, "command": ["pytest", "--benchmark", "--compare", "a.py:f", "b.py:f", "--call", "a.py:make"]}
    assert command_of(pair, manifest_of(functions)) == "pytest --benchmark --compare a.py:f b.py:f --call a.py:make"
    part = a_verdict(an_effect(), part="time")
    assert command_of(part, manifest_of(run)) == "pytest --benchmark --claims a-claim --workloads w"
    with pytest.raises(Fault, match="command"):
        manifest_of({**run, "command": "--device cuda"})
    spanning = a_verdict(an_effect(workload="w to x"), part="trend")
    assert command_of(spanning, manifest_of(run)) == "pytest --benchmark --claims a-claim"


def test_a_grid_s_rows_are_its_workloads() -> None:
    def side(name: str, workload: str, verdict: str) -> Effect:
        return an_effect(variant=f"{name} new", baseline=f"{name} old", workload=workload, verdict=verdict)

    effects = [
        side("architecture", "a", "same"), side("operations", "a", "faster"), side("dummy", "a", "passed"),
        side("architecture", "b", "inconclusive"), side("operations", "b", "faster"),
    ]  # fmt: skip
    told = {
        side: outcome(a_verdict(*effects, verdict="inconclusive", due_to=side))
        for side in ("operations", "architecture")
    }
    assert told == {
        "operations": "supported on 1 of 2, rest inconclusive",
        "architecture": "refuted on 1 of 2, rest inconclusive",
    }


def test_an_effect_without_an_interval_is_counted_and_opens_no_other() -> None:
    key, part = DISPUTE.headlines()[0]
    effects = [an_effect(ratio=1.1, low=1.0, high=1.2), an_effect(ratio=2.0, low=None, high=None)]
    one = a_verdict(*effects, claim=key, part=part, verdict="depends")
    assert "| 1.10 [1.00, 1.20] times as fast (1 of 2 effects; no interval yet for the rest) |" in headlines([one])
    assert "| 2.00 [open, open] times as fast |" in headlines([a_verdict(effects[1], claim=key, part=part)])


def test_the_short_table_has_the_main_claims_that_the_run_has(run: RunFolder) -> None:
    verdicts = run.read(VERDICTS)
    rows = headlines(verdicts).splitlines()[2:]
    assert 0 < len(rows) <= len(verdicts)
    assert all(row.count("|") == 6 for row in rows)
    assert len(headlines([]).splitlines()) == 2


@pytest.mark.parametrize(("ratio", "text"), [(0.0, "0.000"), (0.000128, "0.00013"), (0.05, "0.050"), (12.345, "12.35")])
def test_no_ratio_is_told_as_nothing(ratio: float, text: str) -> None:
    assert digits(ratio) == text
