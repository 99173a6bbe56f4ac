"""What `pytest --benchmark` collects: one test a workload and variant, which replays what was measured beforehand.

pytest-benchmark times all of A and then all of B; the workbench measures a whole workload interleaved and only then
lets each test hand its samples over, so that pytest-benchmark's table, JSON and comparisons show the same numbers.
"""


def test_variant(benchmark, case):  # type: ignore[no-untyped-def]
    """Replay one variant's samples on one workload."""
    case.replay(benchmark)
