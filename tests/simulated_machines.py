"""Prints METHODOLOGY.md's table of verdicts over machines: `python -m tests.simulated_machines [FLEETS]`."""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.special import stdtrit  # noqa: F401

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.stats.confidence import looks_reached, running_interval
from llama_workbench.harness.stats.machines import Ends, between_variance, have_no_common_point, mean_of, random_effects

ROUND_SPREAD = 0.02


def fleet(rng, n, between, region_edge):
    truths = between * rng.standard_normal(n)
    out = []
    for t in truths:
        total = int(rng.integers(15, 80))
        d = t + ROUND_SPREAD * math.exp(0.3 * rng.standard_normal()) * rng.standard_normal(total)
        # stops at the first look that settles, as a run does
        shared = running_interval(d, ALPHA / n)
        for look in looks_reached(total, ALPHA):
            i = running_interval(d[: look.rounds], ALPHA)
            if i.low > region_edge or i.high < region_edge:
                break
        used = d[: look.rounds]
        out.append((t, running_interval(used, ALPHA), running_interval(used, ALPHA / n)))
    return out


def main(fleets):
    rng = np.random.default_rng(1)
    for n in (2, 3, 5, 10):
        for between in (0, 0.02, 0.05, 0.10):
            hit = dict(mean=0, re=0, nxt=0, apart=0, each=0)
            w = dict(mean=[], re=[], nxt=[])
            tau = []
            for _ in range(fleets):
                f = fleet(rng, n, between, 0.01)
                truths = np.array([x[0] for x in f])
                ends = [Ends(i.centre, i.low, i.high) for _, i, _ in f]
                m = mean_of(ends)
                hit["mean"] += not m.low <= truths.mean() <= m.high
                w["mean"].append(m.high - m.low)
                errors = [
                    (i.high - i.low)
                    / 2
                    / (looks_reached(i.n, ALPHA)[-1].half_width(1.0) * math.sqrt(looks_reached(i.n, ALPHA)[-1].rounds))
                    / math.sqrt(i.n)
                    * 1.023
                    for _, i, _ in f
                ]
                y = [e.centre for e in ends]
                tau.append(math.sqrt(between_variance(y, errors)))
                if n > 2:
                    r = random_effects(y, errors, ALPHA)
                    hit["re"] += not r.mean.low <= 0 <= r.mean.high
                    w["re"].append(r.mean.high - r.mean.low)
                    new = between * rng.standard_normal()
                    hit["nxt"] += not r.one_more.low <= new <= r.one_more.high
                    w["nxt"].append(r.one_more.high - r.one_more.low)
                hit["apart"] += have_no_common_point([Ends(i.centre, i.low, i.high) for _, _, i in f])
                hit["each"] += any(not e.low <= t <= e.high for e, t in zip(ends, truths))
            print(
                n,
                between,
                {k: f"{v / fleets:.2%}" for k, v in hit.items()},
                {k: f"{np.median(v) / 2:.2%}" for k, v in w.items() if v},
                f"tau {np.median(tau):.2%}",
                flush=True,
            )


main(int(sys.argv[1]))
