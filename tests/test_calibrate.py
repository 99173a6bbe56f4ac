"""Calibration: what a trial says, what many say together, the file that is continued, and a real trial."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llama_workbench.commands import calibrate as verb
from llama_workbench.commands.shared import Failure
from llama_workbench.harness.calibrate import trials as calibrate
from llama_workbench.harness.calibrate.rates import Rate, row, rows
from llama_workbench.harness.calibrate.record import CalibrationError, Trial, append, read_trials
from tests.runs import Quiet

pytestmark = pytest.mark.usefixtures("warm")


def trial(number: int = 0, percent: int = 0, answer: str = "same", **changes: Any) -> Trial:
    """The variant has more work, so that it is slower."""
    truth = -math.log1p(percent / 100)
    facts: dict[str, Any] = {
        "number": number, "percent": percent, "method": "blocks", "busy": False, "log_ratio": truth, "answer": answer,
        "low": truth - 0.01, "high": truth + 0.01, "rounds": 12, "seconds": 2.0,
    }  # fmt: skip
    return Trial(**facts | changes)


@pytest.mark.parametrize(
    ("percent", "answer", "is_false"),
    [
        (0, "same", False),
        (0, "slower", True),
        (0, "faster", True),
        (0, "inconclusive", False),
        (1, "same", False),  # at the very limit of what is called the same
        (1, "slower", False),
        (1, "faster", True),
        (2, "same", False),  # its interval reaches 3 %: within 2 % is all that was said
        (3, "same", True),
        (5, "slower", False),
        (5, "faster", True),
        (10, "inconclusive", False),
    ],
)
def test_a_verdict_is_false_where_the_truth_lies_outside(percent: int, answer: str, is_false: bool) -> None:
    assert trial(percent=percent, answer=answer).is_false is is_false
    turned = {"slower": "faster", "faster": "slower"}.get(answer, answer)
    assert trial(percent=percent, answer=turned, log_ratio=math.log1p(percent / 100)).is_false is is_false


def test_the_same_means_the_margin_that_holds_the_interval() -> None:
    assert trial(percent=2, low=-0.009, high=0.005).is_false  # said to be within 1 %
    assert not trial(percent=1, low=-0.0099, high=0.005).is_false
    assert not trial(percent=2, low=-0.0198, high=0.005).is_false


def test_an_interval_covers_or_not_and_without_one_nothing_is_counted() -> None:
    assert trial(percent=5).is_covered is True
    assert trial(percent=5, low=-0.02, high=0.0).is_covered is False
    assert trial(percent=5, low=None, high=None).is_covered is None
    found = row("x", [trial(percent=5), trial(percent=5, low=-0.02, high=0.0), trial(low=None, high=None)])
    assert (found.covered.count, found.covered.of) == (1, 2)


def test_rates_have_exact_binomial_intervals() -> None:
    assert Rate(0, 1000).ends == pytest.approx((0, 0.003682), abs=1e-5)  # 1 - 0.025 ** (1 / 1000)
    low, high = Rate(10, 1000).ends
    assert 0.0047 < low < 0.0049 and 0.0182 < high < 0.0184
    assert str(Rate(0, 0)) == "none yet" and Rate(0, 0).ends == (0, 1)


def test_rows_sum_up_by_kind() -> None:
    made = [
        trial(0, 0, "same", seconds=4.0),
        trial(1, 0, "slower", busy=True),
        trial(2, 5, "slower", method="rounds", seconds=6.0),
        trial(3, 5, "inconclusive", busy=True, method="rounds"),
    ]
    found = {each.name: each for each in rows(made)}
    assert [*found] == [
        "all", "no neighbours of ours", "busy neighbours", "blocks of a pair", "rounds", "identical code",
        "5 % more work",
    ]  # fmt: skip
    assert (found["all"].trials, found["all"].false, found["all"].decided) == (4, Rate(1, 4), Rate(3, 4))
    assert (found["busy neighbours"].false, found["no neighbours of ours"].false) == (Rate(1, 2), Rate(0, 2))
    assert found["all"].seconds == 4.0 and found["5 % more work"].seconds == 6.0
    assert row("none", []).seconds is None


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_file_is_continued_and_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "new" / "trials.jsonl"
    append(file, [json.dumps({"machine": {"cores": 2}})])
    append(file, [trial(number).model_dump_json() for number in range(3)])
    whole = file.read_text()
    file.write_text(whole[:-20])
    facts, known = read_trials(file)
    assert facts == {"cores": 2} and [each.number for each in known] == [0, 1]
    append(file, [trial(2).model_dump_json()])
    assert file.read_text() == whole


def test_a_file_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(Failure, match=r"taken.*; name another --file") as told:
        verb.command(trials=1, seconds=1.0, file=tmp_path / "taken" / "trials.jsonl")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["", "nothing\n", '{"machine": 3}\n', '{"machine": {}}\n{"number": 1}\n', "\0\xff\n"])
def test_what_is_no_file_of_trials_is_told_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trials.jsonl"
    file.write_text(text)
    with pytest.raises(CalibrationError, match="not a file of trials") as told:
        read_trials(file)
    assert "\n" not in str(told.value) and str(file) in str(told.value)


class Pretended:
    """Makes trials in no time; the fourth is interrupted."""

    def __init__(self) -> None:
        self.made: list[int] = []

    @contextmanager
    def prepared(self, progress: Any) -> Iterator[Pretended]:
        yield self

    def one(self, number: int, seconds: float) -> Trial:
        self.made.append(number)
        if len(self.made) == 4:
            raise KeyboardInterrupt
        return trial(number, [0, 5][number % 2], ["same", "slower"][number % 2])


def test_the_command_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer

    file = tmp_path / "trials.jsonl"
    pretended = Pretended()
    monkeypatch.setattr(calibrate, "Trials", pretended)
    with pytest.raises(typer.Exit) as ended:
        verb.command(trials=5, seconds=1.0, file=file, as_json=True)
    assert ended.value.exit_code == 130
    out, told = capsys.readouterr()
    assert "interrupted: 3 trials are kept" in told and json.loads(out)["rows"][0]["trials"] == 3
    verb.command(trials=5, seconds=1.0, file=file)
    out, told = capsys.readouterr()
    assert pretended.made == [0, 1, 2, 3, 3, 4]
    assert "0.0 %" in out and "52.2]" in out and "about" in told
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- calibration:begin -->\n<!-- calibration:end -->\nafter\n")
    verb.command(trials=5, seconds=1.0, file=file, into=readme)  # nothing is left to do
    assert len(pretended.made) == 6
    assert "Of 5 comparisons whose outcome was known (0 beside busy neighbours), 0 got" in readme.read_text()
    with pytest.raises(Failure, match="no such file"):
        verb.command(trials=5, seconds=1.0, file=file, into=tmp_path / "nothing.md")


def test_trials_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    append(file, [json.dumps({"machine": {**calibrate.machine(), "cores": 999}})])
    with pytest.raises(Failure, match=r"made on another machine \(cores 999 there"):
        verb.command(trials=1, seconds=1.0, file=file)


def test_the_number_of_a_trial_says_what_it_is() -> None:
    kinds = [calibrate.kind_of(number) for number in range(48)]
    assert len({*kinds}) == 48 == 6 * 2 * 2 * 2
    assert [kind.percent for kind in kinds[:6]] == [0, 1, 2, 3, 5, 10]
    assert {kind.method for kind in kinds[:6]} == {"apart"} and {kind.method for kind in kinds[6:12]} == {"together"}


# -- real trials -------------------------------------------------------------------------------------------------------


def test_real_trials_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods and neighbours by the number of the trial; ten percent more work is found, by both methods."""
    monkeypatch.setattr(calibrate, "PLANTED", {10: calibrate.PLANTED[10]})
    with calibrate.Trials.prepared(Quiet()) as prepared:
        ten = [prepared.one(number, 600.0) for number in (0, 1)]  # ends when it is decided
        busy = prepared.one(2, 0.1)
        none = prepared.one(4, 0.0)
    assert [each.percent for each in ten] == [10, 10]
    assert ten[1].method == "rounds"  # the other has blocks, unless a busy gate found its sides unlike
    for each in ten:
        assert each.rounds >= 12 and each.low is not None and each.high is not None
        assert abs((each.low + each.high) / 2 - each.log_ratio) < 0.08
    assert (busy.percent, busy.busy) == (10, True)
    assert not ten[0].busy
    assert (none.rounds, none.low, none.high, none.answer) == (0, None, None, "inconclusive")
