"""`python -m tests.fuzz [--cases N] [--seed S] [--kind NAME ...]`: the table of the documents, as long as you like."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.slices.test_damaged_files import KINDS as OF_SLICES

from . import try_all
from .foreign import KINDS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="damaged copies of each kind (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kind", action="append", choices=[kind.name for kind in (*KINDS, *OF_SLICES)], help="only this kind"
    )
    options = parser.parse_args()
    print("| kind | tried | refused | warned | unchanged | another, accepted | failed |\n|---|---|---|---|---|---|---|")
    failures = []
    for kind in (*KINDS, *OF_SLICES):
        if options.kind and kind.name not in options.kind:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally = try_all(kind, Path(folder) / "tries", cases=options.cases, seed=options.seed)
        columns = (tally.tried, tally.refused, tally.warned, tally.unchanged, tally.accepted, len(tally.failed))
        print(f"| {kind.name} | " + " | ".join(map(str, columns)) + " |", flush=True)
        failures += [f"{kind.name}, case {number}: {what}" for number, what in tally.failed]
    print(*failures, sep="\n", file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
