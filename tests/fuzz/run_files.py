"""The files of a run folder."""

from __future__ import annotations

from . import Kind

KINDS: tuple[Kind, ...] = ()
