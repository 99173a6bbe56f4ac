"""Looks at each variant once the rounds are over, for people and not for verdicts: one module a profiler."""
