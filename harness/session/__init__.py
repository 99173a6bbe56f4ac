"""One run from request to verdicts, one that goes on, and what users start runs with: functions, revisions."""
