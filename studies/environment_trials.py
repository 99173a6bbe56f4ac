"""An environment against itself: `python -m studies.environment_trials [SECONDS]` prints the table.

Each of three functions is compared with itself, both sides in this environment, for so many seconds. How much do pairs
of processes differ, how often would a single pair have called identical code different, and how wide is the interval?
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from llama_workbench.harness.evidence.effect import ALPHA
from llama_workbench.harness.plan.options import Options
from llama_workbench.harness.session.questions import Inputs, compare_revisions
from llama_workbench.harness.spec.regions import Condition
from llama_workbench.harness.stats.confidence import Interval, fixed_interval, running_interval
from tests.runs import Quiet

FUNCTIONS = {
    "counting 3,000 words in a dict": """\
import random

def made(seed):
    draw = random.Random(seed)
    return [str(draw.randrange(1000)) for _ in range(3000)]

def f(words):
    found = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
""",
    "products and a softmax, torch, 160 x 160": """\
import torch

def made(seed):
    return torch.randn(160, 160)

def f(x):
    for _ in range(4):
        x = torch.softmax(x @ x, dim=-1)
    return x
""",
    "sorting 400 numbers ten times": """\
import random

def made(seed):
    draw = random.Random(seed)
    return [draw.random() for _ in range(400)]

def f(numbers):
    return [sorted(numbers) for _ in range(10)]
""",
}
FIRST_LOOK, SECOND_LOOK = 12, 24


def row(name: str, samples: pd.DataFrame) -> str:
    """One line of the table, from the samples of a run."""
    rounds = log_ratios(samples)
    values = np.array([each.median() for each in rounds])
    alone = [fixed_interval(each.to_numpy(), ALPHA) for each in rounds]
    missed = sum(not each.low <= 0 <= each.high for each in alone)
    looks = (FIRST_LOOK, SECOND_LOOK)
    widths = [_half(running_interval(values[:count], ALPHA), len(values) >= count) for count in looks]
    whole = running_interval(values, ALPHA)
    low, centre, high = (math.exp(each) for each in (whole.low, whole.centre, whole.high))
    cells = [name, str(len(values)), f"{centre:.3f} [{low:.3f}, {high:.3f}]", f"{100 * values.std(ddof=1):.1f} %"]
    return f"| {' | '.join([*cells, f'{missed} of {len(alone)}', *widths])} |"


def log_ratios(samples: pd.DataFrame) -> list[pd.Series]:
    """For each round the differences of log times of both sides, by turn."""
    keys = ["round", "sub_round", "variant"]
    times = np.log(samples["cpu_ns"].to_numpy() / samples["repeats"].to_numpy())
    wide = samples[keys].assign(log=times).pivot(index=keys[:2], columns="variant", values="log").dropna()
    difference = wide.iloc[:, 0] - wide.iloc[:, 1]
    return [each for _, each in difference.groupby(level="round")]


def _half(interval: Interval, known: bool) -> str:
    return f"{50 * (interval.high - interval.low):.1f} %" if known else "–"


def trial(text: str, seconds: float) -> pd.DataFrame:
    """The samples of a function against itself."""
    with tempfile.TemporaryDirectory(prefix="environment-trials-") as folder, contextlib.chdir(folder):
        Path("mine.py").write_text(text, encoding="utf-8")
        inputs = Inputs(("mine.py:made",), environments=(sys.prefix,))
        options = Options(budget_seconds=seconds, run_dir=Path(folder) / "run")
        result = compare_revisions("mine.py:f", (".", "."), inputs, Condition("maybe-slower", 0.0), options, Quiet())
        return result.folder.read_samples().frame()


def main(seconds: float) -> None:
    """Print the table."""
    heads = ("function", "rounds", "result", "rounds vary by", "pairs whose own 99 % interval excludes 1")
    print("|", " | ".join((*heads, f"± after {FIRST_LOOK} rounds", f"± after {SECOND_LOOK}")), "|")
    print("|" + "---|" * 7)
    for name, text in FUNCTIONS.items():
        print(row(name, trial(text, seconds)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 540.0)
