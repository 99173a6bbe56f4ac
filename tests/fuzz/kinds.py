"""Every kind of file that is fuzzed."""

from __future__ import annotations

from . import Kind, foreign, run_files

KINDS: tuple[Kind, ...] = (*run_files.KINDS, *foreign.KINDS)
