"""What users hand in: checkpoints and claims."""

from __future__ import annotations

from . import Kind

KINDS: tuple[Kind, ...] = ()
