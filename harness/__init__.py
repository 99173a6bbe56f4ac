"""From claims to verdicts: plan, measure, store, judge, report (see the modules of those names)."""
