"""Prints how near the workbench comes to plain Python: `python -m studies.plain_trials [SECONDS [PAIR...]]`.

Each pair of `plain_pairs` is measured by `pytest --benchmark --compare` for so many seconds, between two measurements
of the same by plain Python: each side alone in fresh processes, in a bare interpreter and in one that has imported what
programs import. What plain Python says is the range of these four. Nothing else may run on the machine meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from studies import plain_pairs
from studies.plain_pairs import PAIRS, PROGRAMS, plain_ratio

SECONDS = 15.0

NEAR = 0.1
"""Of the ratio: so far it may lie outside the range of what plain Python says."""


def measured(pair: str, seconds: float, folder: Path, *words: str) -> dict[str, Any]:
    """The effect that `pytest --benchmark` finds, as verdicts.json has it. Raises RuntimeError with what it printed
    where it finds none."""
    file = Path(plain_pairs.__file__)
    (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    first, second, given = (f"{file.name}:{name}" for name in PAIRS[pair])
    run = folder / pair.replace(" ", "-")
    command = [sys.executable, "-m", "pytest", "--benchmark", "-p", "no:cacheprovider", "--no-causes"]
    command += ["--compare", first, second, "--call", given, "--budget", f"{seconds:g}", "--run-dir", str(run), *words]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    try:
        [verdict] = json.loads((run / "verdicts.json").read_text(encoding="utf-8"))
        [effect] = verdict["effects"]
    except (OSError, ValueError) as error:
        raise RuntimeError(f"{pair}: exit code {said.returncode}\n{said.stdout}{said.stderr}") from error
    assert isinstance(effect, dict)
    return effect


def main(seconds: float, pairs: list[str]) -> None:
    """Print a row as soon as a pair is measured."""
    print(f"| pair | plain Python: {', '.join(PROGRAMS)} | workbench | off by |\n|---|---|---|---|", flush=True)
    near = 0
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs:
            plain = {program: [plain_ratio(pair, program=program)] for program in PROGRAMS}
            try:
                found = measured(pair, seconds, Path(folder))
            except RuntimeError as error:
                print(error, file=sys.stderr, flush=True)
                print(f"| {pair} | | none | |", flush=True)
                continue
            for program, ratios in plain.items():
                ratios.append(plain_ratio(pair, program=program))
            every, ratio = [each for ratios in plain.values() for each in ratios], found["ratio"]
            off = ratio / min(max(ratio, min(every)), max(every)) - 1
            near += abs(off) <= NEAR
            said = ", ".join(f"{before:.3g} and {after:.3g}" for before, after in plain.values())
            ends = f"[{found['low']:.3g}, {found['high']:.3g}]" if found["low"] is not None else "no interval"
            print(f"| {pair} | {said} | {ratio:.3g} {ends} | {off:+.1%} |", flush=True)
    print(f"\n{near} of {len(pairs)} within {NEAR:.0%}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS, sys.argv[2:] or [*PAIRS])
