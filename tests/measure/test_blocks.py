"""Pairs measured apart: two real processes that take turns on one core, what they answer, and whose turn is next."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from llama_workbench import ROOT
from llama_workbench.cache import cache_directory
from llama_workbench.datasets import geometries, workloads
from llama_workbench.datasets.checkpoints import synthesize
from llama_workbench.harness.calls.source import parse
from llama_workbench.harness.claims.reading import load_claims
from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.evidence.evidence import Evidence
from llama_workbench.harness.judge.stopping import ENOUGH_ROUNDS, PROCESSES_OF_CONTROL, StoppingRule
from llama_workbench.harness.measure import choosing
from llama_workbench.harness.measure.choosing import (
    LEAST_BLOCK_SECONDS,
    LEAST_CALL_NS,
    MOST_BLOCK_SECONDS,
    MOST_CALL_NS,
    Remaining,
    block_seconds,
    can_be_apart,
    choose_apart,
    decide_sliced,
    in_parts,
    is_sliced,
    pace_of,
)
from llama_workbench.harness.measure.participants import ExperimentState
from llama_workbench.harness.measure.processes import Examination, WorkerProcess
from llama_workbench.harness.plan.experiments import make_plan
from llama_workbench.harness.plan.options import Options, Request
from llama_workbench.harness.report.standings import _relative_time
from llama_workbench.harness.session.judging import stopping_rule
from llama_workbench.harness.session.run import Run, plan_run
from llama_workbench.harness.spec.comparison import Comparison
from llama_workbench.harness.spec.experiments import Experiment
from llama_workbench.harness.spec.sample import Round, RoundAnswer, Sample
from llama_workbench.harness.stats.confidence import first_interval
from llama_workbench.harness.worker.rounds import TimedSample, cores_to_build_on, in_common
from tests.runs import Quiet
from tests.tables import table_of
from tests.unchanged import SESSIONS

pytestmark = [pytest.mark.covers(*SESSIONS), pytest.mark.usefixtures("warm")]

OUTSIDE = ROOT / "tests" / "outside_variants.py"
WORKLOAD = workloads.get("prefill-tiny-t16")
ADDED = ("good", "kills_in_blocks", "hangs_in_blocks", "fails_in_blocks", "wrong_in_blocks", "noisy_in_blocks")


@dataclass
class Measuring:
    """A measuring process in which variants have passed their gates, and the one that judges outputs."""

    process: WorkerProcess
    examination: Examination
    blocks: int = 0

    def block(self, *sides: str, seconds: float = 0.3, limit: float = 30.0) -> RoundAnswer:
        """The answer to one block."""
        self.blocks += 1
        where = {"workload": WORKLOAD.name, "round_index": self.blocks, "outputs": str(self.examination.file)}
        return RoundAnswer.from_json(
            self.process.ask("block", 60.0, sides=sides, seconds=seconds, limit=limit, **where)
        )


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measuring]:
    cache, logs = cache_directory(), tmp_path_factory.mktemp("logs")
    added = {name: asdict(parse(f"{OUTSIDE}:{name}", option="x")) for name in ADDED}
    folder = str(synthesize(geometries.get(WORKLOAD.geometry), cache=cache))
    hello = {"process": 1, "added": added, "draw": "a draw"}
    with (
        closing(WorkerProcess(threads=1, cache=cache, log=logs / "worker.log", hello=hello)) as process,
        closing(Examination(cache=cache, log=logs / "examiner.log")) as examination,
    ):
        process.ask("open", 60.0, workload=WORKLOAD.model_dump(), folder=folder, seed=0)
        for name in ("team006_before", "team006_after", *ADDED):
            answer = process.ask("gate", 120.0, workload=WORKLOAD.name, variant=name)
            assert answer["gate"]["passed"] and answer["cheap"], answer
        process.ask("freeze", 60.0)
        yield Measuring(process, examination)


def test_a_block_gives_each_side_one_sample_and_outputs_to_judge(measuring: Measuring) -> None:
    while not (answer := measuring.block("team006_before", "team006_after")).drawn:
        pass  # outputs of our own code are judged now and then
    sides = answer.samples
    assert {side.variant for side in sides} == {"team006_before", "team006_after"}
    assert {side.position for side in sides} == {0, 1} and {side.sub_round for side in sides} == {0}
    assert all(side.repeats > 10 and side.wall_ns >= side.cpu_ns > 0 for side in sides)
    assert not answer.changed and not answer.elsewhere and not answer.wrong
    [drawn] = answer.drawn
    folder = synthesize(geometries.get(WORKLOAD.geometry), cache=cache_directory())
    assert measuring.examination.judge(folder, WORKLOAD, "a draw", answer.drawn) == {}
    # Of another draw the same numbers are other prompts: what was just judged was not judged by chance.
    wrong = measuring.examination.judge(folder, WORKLOAD, "another draw", answer.drawn)
    assert wrong.keys() == {drawn["variant"]}


def test_an_output_of_foreign_code_is_judged_in_every_block(measuring: Measuring) -> None:
    for _ in range(4):
        drawn = [each["variant"] for each in measuring.block("good", "team006_after").drawn]
        assert drawn.count("good") == 1 and {*drawn} <= {"good", "team006_after"}


def test_the_next_block_has_other_prompts(measuring: Measuring) -> None:
    first, second = ({each["prompt"] for each in measuring.block("team006_before", "good").drawn} for _ in range(2))
    assert max(first) < min(second)


@pytest.mark.parametrize(
    ("name", "limit", "said"),
    [
        ("kills_in_blocks", 30.0, "ends its process (exit code 7)"),
        ("fails_in_blocks", 30.0, "raises IndexError: pop from empty list (outside_variants.py, line 132)"),
        ("hangs_in_blocks", 4.7, "hangs: no answer in 5 s"),
        ("noisy_in_blocks", 30.0, "writes into the pipe by which its process answers"),
    ],
)
def test_a_side_that_fails_is_named_and_the_other_is_not(
    measuring: Measuring, name: str, limit: float, said: str
) -> None:
    answer = measuring.block(name, "team006_after", limit=limit)
    assert {**answer.changed, **answer.failed} == {name: said}
    assert bool(answer.changed) == (name == "noisy_in_blocks"), "who ends, hangs or raises loses a process"
    assert not answer.samples
    assert {each["variant"] for each in answer.drawn} <= {"team006_after"}
    assert len(measuring.block("team006_before", "team006_after").samples) == 2


def test_a_wrong_output_is_found(measuring: Measuring) -> None:
    answer = measuring.block("wrong_in_blocks", "team006_after")
    folder = synthesize(geometries.get(WORKLOAD.geometry), cache=cache_directory())
    wrong = measuring.examination.judge(folder, WORKLOAD, "a draw", answer.drawn)
    assert wrong.keys() == {"wrong_in_blocks"}


def timed(name: str, *times: tuple[int, int, int]) -> list[TimedSample]:
    """Samples of two calls each that began, ended, and took so much processor time."""
    return [TimedSample(b, e, Sample(name, n, 0, 16, 2, cpu, e - b, 1)) for n, (b, e, cpu) in enumerate(times)]


def test_only_the_time_in_which_both_computed_counts() -> None:
    one = timed("one", (0, 10, 9), (10, 20, 5), (20, 30, 5), (30, 40, 5))
    other = timed("other", (12, 18, 3), (18, 28, 5), (28, 40, 6))
    a, b = in_common(
        [one, other], dropped=0.0
    )  # from 12 to 40: 0.8 of the first's second sample, and no more of its first
    calls, cpu, wall, faults = 2 * 2.8, 5 * 2.8, 10 * 2.8, 2.8
    assert (a.variant, a.repeats, a.cpu_ns) == ("one", 5, round(cpu * 5 / calls)), "5.6 calls, scaled to 5"
    assert (a.wall_ns, a.faults) == (round((wall - 14) * 5 / calls), round(faults * 5 / calls)), "less the other's time"
    assert (b.variant, b.repeats, b.cpu_ns, b.wall_ns, b.faults) == ("other", 6, 14, 28 - 14, 3)
    assert in_common([one, timed("other", (41, 50, 9))], dropped=0.0) == []
    assert in_common([one, timed("other", (0, 4, 4), (4, 400, 300))], dropped=0.0) != []
    assert in_common([one, timed("other", (32, 150, 100))], dropped=0.0) == [], "less than a call of one side"
    assert in_common([one, []]) == []


def test_the_first_part_of_a_block_is_dropped() -> None:
    """Both sides cover the same tenth less, also where it ends within a sample."""
    one = timed("one", (0, 100, 90), (100, 200, 50))
    other = timed("other", (0, 50, 10), (50, 200, 70))
    a, b = in_common([one, other])  # from 20 to 200
    assert a.cpu_ns / a.repeats == pytest.approx((0.8 * 90 + 50) / 3.6, abs=0.5)
    assert b.cpu_ns / b.repeats == pytest.approx((0.6 * 10 + 70) / 3.2, abs=0.5)


def test_foreign_code_is_built_where_it_is_sampled() -> None:
    assert cores_to_build_on([1, 0], 3, foreign=False) == [1, 0, 1]
    assert cores_to_build_on([1, 0], 3, foreign=True) == [1, 1, 1]
    assert cores_to_build_on([4], 2, foreign=False) == [4, 4]


def test_noise_at_the_ends_of_a_block_meets_both_sides_alike() -> None:
    """One machine, at times twice as slow, and two sides that take turns on it, with calls of other lengths: both
    compute half of the time, so the ratio of their times must be that of their work."""

    def side(name: str, work: float, offset: int) -> list[TimedSample]:
        samples, at = list[TimedSample](), offset
        while at < 4000:
            left, end = work, at
            while left > 0:
                left -= 0.25 if end // 500 % 2 else 0.5
                end += 1
            samples.append(TimedSample(at, end, Sample(name, len(samples), 0, 16, 1, (end - at) // 2, end - at, 0)))
            at = end
        return samples

    for offset in range(0, 400, 40):
        a, b = in_common([side("one", 100, 0), side("other", 120, offset)])
        assert b.cpu_ns / b.repeats / (a.cpu_ns / a.repeats) == pytest.approx(1.2, rel=0.02)


# -- which pairs, and for how long -------------------------------------------------------------------------------------

PAIR = Comparison("prefill-15m-t128", "team006_after", "team006_before")
NEVER: Callable[[Comparison], bool] = lambda pair: False  # noqa: E731
ALWAYS: Callable[[Comparison], bool] = lambda pair: True  # noqa: E731


def experiment_of(*variants: str) -> Experiment:
    """Each variant is compared with the first."""
    [experiment] = make_plan(Request(compare=(variants[0], variants[1]), workloads=(PAIR.workload,)), []).experiments
    [target] = experiment.targets
    targets = [replace(target, comparison=PAIR._replace(variant=name, baseline=variants[0])) for name in variants[1:]]
    return replace(experiment, variants=variants, targets=tuple(targets))


def a_state(call_ms: float = 20.0, **changes: Any) -> ExperimentState:
    experiment = experiment_of("team006_before", "team006_after")
    state = ExperimentState(experiment, None, call_ns=dict.fromkeys(PAIR.sides, call_ms * 1e6))
    return replace(state, **changes)


def test_only_pairs_that_can_be_cut_up_are_measured_in_blocks() -> None:
    assert is_sliced(a_state(), PAIR)
    assert is_sliced(a_state(LEAST_CALL_NS / 1e6), PAIR) and is_sliced(a_state(MOST_CALL_NS / 1e6), PAIR)
    assert not is_sliced(a_state(0.99 * LEAST_CALL_NS / 1e6), PAIR)
    assert not is_sliced(a_state(1.01 * MOST_CALL_NS / 1e6), PAIR)
    assert not is_sliced(a_state(call_ns={"team006_before": 18e6, "team006_after": 24e6}), PAIR), "too unlike"
    assert is_sliced(a_state(call_ns={"team006_before": 20e6, "team006_after": 20.9e6}), PAIR)
    assert not is_sliced(a_state(device="cuda"), PAIR)
    threaded = WORKLOAD.model_copy(update={"threads": 2})
    assert not is_sliced(a_state(experiment=replace(a_state().experiment, workload=threaded)), PAIR)


def test_what_must_not_be_loaded_for_one_pair_is_measured_together() -> None:
    assert (
        can_be_apart(a_state(), PAIR)
        and can_be_apart(a_state(500.0), PAIR)
        and can_be_apart(a_state(device="cuda"), PAIR)
    )
    assert not can_be_apart(a_state(wall_variants=["team006_after"]), PAIR)
    assert not can_be_apart(a_state(kept_together=["team006_before"]), PAIR)
    assert not can_be_apart(a_state(0.99 * LEAST_CALL_NS / 1e6), PAIR)
    assert not can_be_apart(a_state(), PAIR._replace(variant="never gated"))
    assert not can_be_apart(a_state(), PAIR._replace(metric="time_to_first_token"))


def test_where_time_is_short_headlines_are_measured_apart_and_others_together() -> None:
    experiment = experiment_of("team006_before", "fast", "team006_after")
    first, second = experiment.targets
    experiment = replace(experiment, targets=(first, replace(second, headline=True)))
    state = ExperimentState(experiment, None, call_ns=dict.fromkeys(experiment.entered(), 20e6))
    for seconds, those in ((60.0, {"fast", "team006_after"}), (12.0, {"team006_after"}), (5.0, set())):
        choose_apart([state], rule_of(experiment), seconds)
        assert {pair.variant for pair in state.pairs_apart or ()} & {"fast", "team006_after"} == those, seconds
    assert state.pairs_apart == frozenset()
    choose_apart([state], rule_of(experiment), 60.0)
    assert {pair.variant for pair in state.pairs_apart or ()} >= {"team006_before@aa", "yardstick"}
    lonely = a_state()
    choose_apart([lonely], rule_of(lonely.experiment), 1.0)
    assert lonely.is_apart(PAIR), "there is nothing that it could share rounds with"


def test_a_slow_moment_at_a_gate_does_not_keep_a_pair_from_its_blocks() -> None:
    state = a_state()
    state.call_ns["team006_after"] *= 2
    assert not is_sliced(state, PAIR)
    times = {name: round(1e7 * state.call_ns["team006_before"]) for name in PAIR.sides}
    samples = [Sample(name, 0, place, 128, 10**7, times[name], times[name], 0) for place, name in enumerate(times)]
    state.note_calls(samples)
    assert is_sliced(state, PAIR)
    state.note_calls([samples[0]._replace(cpu_ns=0), samples[1]._replace(cpu_ns=3 * samples[1].cpu_ns)])
    assert is_sliced(state, PAIR), "a clock that stood still, and a slow round, say nothing"
    state.sliced[PAIR] = False
    assert not is_sliced(state, PAIR), "its first round decided"


def test_a_slow_minute_at_its_first_round_does_not_keep_a_pair_from_its_blocks() -> None:
    state = a_state()
    usual = state.call_ns["team006_before"]  # of the minute in which another pair with it was measured
    state.call_ns["team006_after"] *= 1.5

    def first_round(before_ns: float, after_ns: float) -> bool:
        times = {"team006_before": round(before_ns), "team006_after": round(after_ns)}
        samples = [Sample(name, 0, place, 128, 1, times[name], times[name], 0) for place, name in enumerate(times)]
        state.note_calls(samples)
        decide_sliced(state, PAIR, samples)
        return is_sliced(state, PAIR)

    assert not first_round(1.4 * usual, 2.1 * usual), "neither the least times nor this round's are alike"
    assert first_round(1.4 * usual, 1.45 * usual), "this round's are"
    assert first_round(1.4 * usual, 1.04 * usual), "the least times are"


def test_a_block_is_long_against_what_it_takes_beside_its_samples() -> None:
    assert block_seconds(a_state(), PAIR.sides) == LEAST_BLOCK_SECONDS
    assert block_seconds(a_state(), [*PAIR.sides, "yardstick"]) == 1.5 * LEAST_BLOCK_SECONDS
    assert block_seconds(a_state(beside_seconds=0.3), PAIR.sides) == pytest.approx(0.9)
    assert block_seconds(a_state(200.0), PAIR.sides) == pytest.approx(1.2), "three calls of each side"
    assert block_seconds(a_state(beside_seconds=9.0), PAIR.sides) == MOST_BLOCK_SECONDS


def test_where_time_is_short_blocks_are_short_enough_for_all_first_intervals() -> None:
    state = a_state(beside_seconds=0.3)
    early = Remaining((*PAIR.sides,), True, 10.0, 50.0, pair=PAIR)
    known = Remaining((*PAIR.sides,), False, 10.0, 50.0, pair=PAIR)
    assert pace_of([(state, early), (state, early), (state, known)], 40.0) == pytest.approx(1.0)
    assert pace_of([(state, known)], 20.0) == math.inf
    assert block_seconds(state, PAIR.sides, 1.0) == pytest.approx(0.7)
    assert block_seconds(state, PAIR.sides, 0.1) == LEAST_BLOCK_SECONDS
    assert block_seconds(state, PAIR.sides, 9.0) == pytest.approx(0.9)


def test_a_reference_benchmark_of_other_calls_is_in_no_block() -> None:
    """It has a round with its partner: what caches lose at each switch would be in its ratio, by which runs compare."""
    sides = (PAIR.baseline, PAIR.variant)
    call_ns = dict.fromkeys(sides, 20e6)

    def parts(third: str, milliseconds: float, sides_ns: dict[str, float] = call_ns) -> list[tuple[str, ...]]:
        chosen = Remaining((*sides, third), True, 12.0, 12.0, pair=PAIR)
        state = a_state(call_ns={**sides_ns, third: milliseconds * 1e6})
        return [each.variants for each in in_parts(state, chosen)]

    assert parts("yardstick", 20.5) == [(*sides, "yardstick")]
    assert parts("yardstick", 24.0) == [sides, (PAIR.baseline, "yardstick")]
    assert parts(f"{PAIR.baseline}@aa", 24.0) == [(*sides, f"{PAIR.baseline}@aa")]
    assert parts("yardstick", 24.0, {sides[0]: 20e6, sides[1]: 30e6}) == [(*sides, "yardstick")], "no block at all"


def rule_of(experiment: Experiment) -> StoppingRule:
    plan = make_plan(Request(compare=("team006_before", "team006_after")), [])
    return stopping_rule(replace(plan, experiments=(experiment,)), {})


def measure(rule: StoppingRule, experiment: Experiment, blocks: int, spread: float = 1.05) -> list[tuple[str, ...]]:
    """Give a rule the blocks that it asks for, of equal variants; the sides of each."""
    had: list[tuple[str, ...]] = []
    rng = random.Random(3)
    while len(had) < blocks and (open_ := rule.remaining(experiment, ALWAYS)):
        names = min(open_, key=lambda each: (not each.early, each.rounds_next)).variants
        times = [int(9e6 * rng.uniform(1 / spread, spread)) for _ in names]
        samples = [Sample(name, 0, place, 128, 1, times[place], times[place], 0) for place, name in enumerate(names)]
        rule.add(Round(experiment.workload.name, 1, len(had), tuple(samples)))
        rule.end_process()
        had.append(names)
    return had


def test_each_pair_is_asked_for_by_itself() -> None:
    experiment = experiment_of("fast", "team006_before", "team006_after")
    open_ = rule_of(experiment).remaining(experiment, ALWAYS)
    pairs = {target.comparison for target in experiment.targets}
    assert {each.pair for each in open_} == pairs and len(pairs) == 2
    for each in open_:
        assert each.pair is not None and {*each.variants} == each.pair.sides | {"fast@aa"}
        assert each.early and each.rounds_next == first_interval(ALPHA) and each.effects == 1
    [together] = rule_of(experiment).remaining(experiment, NEVER)
    assert together.pair is None and {*together.variants} == {*experiment.entered()}
    chosen = next(iter(pairs))
    some = rule_of(experiment).remaining(experiment, lambda pair: pair == chosen)
    assert [each.pair for each in some] == [None, chosen]
    assert {*some[1].variants} >= chosen.sides


def test_controls_take_part_one_after_the_other_until_they_are_known() -> None:
    experiment = experiment_of("team006_before", "team006_after")
    had = measure(rule_of(experiment), experiment, PROCESSES_OF_CONTROL * ENOUGH_ROUNDS + 4, spread=1.3)
    turns = [("team006_before@aa",), (), ("yardstick",), ()]
    assert len(turns) == PROCESSES_OF_CONTROL
    assert [sides[2:] for sides in had] == [*turns * ENOUGH_ROUNDS, *[()] * 4]
    rule = rule_of(experiment)
    rule.to_compare = True
    had = measure(rule, experiment, 2 * ENOUGH_ROUNDS + 1, spread=1.3)
    assert [sides[2:] for sides in had] == [
        *[("yardstick",)] * ENOUGH_ROUNDS, *[("team006_before@aa",)] * ENOUGH_ROUNDS, (),
    ]  # fmt: skip


def test_a_settled_pair_needs_no_more_blocks_but_the_reference_benchmark_gets_its_interval() -> None:
    experiment = experiment_of("team006_before", "team006_after")
    had = measure(rule_of(experiment), experiment, 300, spread=1.002)
    first = first_interval(ALPHA)
    both = ("team006_before", "team006_after")
    turns = [("team006_before@aa",), (), ("yardstick",), ()]
    assert had[:first] == [(*both, *turn) for turn in turns * (first // PROCESSES_OF_CONTROL)]
    alone, more = Counter(had[first:]), first - first // PROCESSES_OF_CONTROL
    assert alone == {("team006_before", control): more for control in ("team006_before@aa", "yardstick")}


def test_a_control_takes_part_where_its_partner_does() -> None:
    experiment = experiment_of("fast", "team006_before", "team006_after")
    had = measure(rule_of(experiment), experiment, 40, spread=1.3)
    assert {sides[2:] for sides in had} == {("fast@aa",), ("yardstick",), ()}


@pytest.mark.whole
def test_contrasts_stay_open_where_every_pair_is_settled() -> None:
    plan = make_plan(Request(claims=("arch-or-ops",), everything=True), load_claims(ROOT / "claims"))
    experiment = next(each for each in plan.experiments if each.contrasts)
    experiment = replace(experiment, targets=())
    [together] = rule_of(experiment).remaining(experiment, ALWAYS)
    assert together.pair is None and {*experiment.grid} <= {*together.variants}


def test_a_round_in_which_nothing_could_be_timed_tells_nothing() -> None:
    experiment = experiment_of("team006_before", "team006_after")
    rule = rule_of(experiment)
    rule.add(Round(experiment.workload.name, 1, 0, ()))
    rule.end_process()
    assert not any(rule.series.values())
    assert block_seconds(a_state(lost_blocks=1), PAIR.sides) == 2 * LEAST_BLOCK_SECONDS


# -- a run -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_measures_its_pairs_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_UNLIKE", 10.0)  # gates time calls badly on a busy machine
    monkeypatch.setattr(choosing, "MOST_CALL_NS", 10**9)
    monkeypatch.setattr(choosing, "LEAST_CALL_NS", 0)  # however fast the machine is
    request = Request(compare=("team006_before", "team006_after"), workloads=("decode-15m-c64",))
    options = Options(budget_seconds=6.0, run_dir=tmp_path / "run")
    result = Run(plan_run(request, options), options, Quiet()).measure()
    [experiment] = result.manifest.experiments
    assert experiment.blocks == experiment.rounds > 0
    samples = result.folder.read_samples().frame()
    blocks = [{*map(str, names)} for _, names in samples.groupby(["process", "round"])["variant"]]
    assert {len(names) for names in blocks} <= {2, 3}
    [effect] = result.verdicts[0].effects
    assert effect.rounds == samples[samples["variant"].isin(PAIR.sides)]["process"].nunique() > 1


def test_a_variant_that_never_met_the_reference_benchmark_has_a_relative_time_by_way_of_the_baseline() -> None:
    rows = [
        {
            "workload": "w", "variant": name, "process": number + 1, "round": number, "sub_round": 0, "position": place,
            "tokens": 8, "repeats": 1, "cpu_ns": int(1e9 * slow), "wall_ns": 10**9, "faults": 0,
        }
        for number in range(40)
        for place, (name, slow) in enumerate(
            [("base", 2.0), ("variant", 1.6)] if number % 2 else [("base", 1.0), ("yardstick", 1.25)]
        )
    ]  # fmt: skip
    samples = pd.DataFrame(rows).assign(first_cpu_ns=0, first_wall_ns=0, device_ns=0, first_device_ns=0)
    evidence = Evidence(samples=table_of(samples), measured={"w": ("base", "variant", "yardstick")})
    found = _relative_time(evidence, ("w", "variant"), "yardstick", "base")
    assert math.exp(found.log_ratio) == pytest.approx(1.25 * 1.25) and found.rounds == 20
    assert found.low <= found.log_ratio <= found.high < math.inf
    direct = _relative_time(evidence, ("w", "base"), "yardstick", "base")
    assert math.exp(direct.log_ratio) == pytest.approx(1.25)
    assert _relative_time(evidence, ("w", "nobody"), "yardstick", "base").high == math.inf
