"""A run folder that grows on one machine, copied to another while it does: what is new, in parts, and back into files.

Finished rounds come as lines of the journal, all else as whole files. Rounds are judged by the gates and exclusions in
run.json, so that a part of the journal is sent behind a run.json that was read after it. When the run has ended come
samples.parquet, then the others with SHA256SUMS, then the sealed run.json.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..store.files import JOURNAL, MANIFEST, SAMPLES, SUMS

PART_BYTES = 4 << 20
LOG_BYTES = 1 << 20
"""Of a log at most this much is sent."""

_DATA = re.compile(
    r"log/[A-Za-z0-9._-]+\.log|profiles/(?:[A-Za-z0-9@._+-]+/)*[A-Za-z0-9@._+-]+\.folded|[\w-]+\.(json|parquet)"
)
"""Files of a run and of its passes."""


class FilePart(NamedTuple):
    """Bytes of a file."""

    name: str
    offset: int  # where in the file they begin
    content: bytes
    last: bool  # whether the file ends there; the journal has no end


def is_a_run_file(name: str) -> bool:
    """Whether a run may have a file of this name. It comes from another machine: none may lead out of the folder."""
    plain = ".." not in PurePosixPath(name).parts
    return plain and (name in (JOURNAL, SUMS) or _DATA.fullmatch(name) is not None)


class Outgoing:
    """What is new in a run folder since it was last asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._journal = 0

    def parts(self, *, ended: bool) -> Iterator[FilePart]:
        """In the order in which they must be written. ended: whether the run has, in order or by a kill."""
        rounds = self._rounds()
        finished = (self.folder / SAMPLES).exists() and not (self.folder / JOURNAL).exists()  # with all rounds in there
        there = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        others = sorted(name for name in there if self._is_sent_now(name, ended))
        for name in (SAMPLES, *others, MANIFEST) if finished else (MANIFEST, *others):
            yield from self._whole(name)
            if name == MANIFEST and not finished:
                yield from rounds

    def _is_sent_now(self, name: str, ended: bool) -> bool:
        if name in (MANIFEST, JOURNAL, SAMPLES) or not is_a_run_file(name):
            return False
        return ended or not name.startswith(("log/", "profiles/"))

    def _rounds(self) -> list[FilePart]:
        """New whole lines of the journal."""
        try:
            with (self.folder / JOURNAL).open("rb") as file:
                file.seek(self._journal)
                content = file.read()
        except FileNotFoundError:
            return []
        content = content[: content.rfind(b"\n") + 1]
        parts = [
            FilePart(JOURNAL, self._journal + start, content[start : start + PART_BYTES], False)
            for start in range(0, len(content), PART_BYTES)
        ]
        self._journal += len(content)
        return parts

    def _whole(self, name: str) -> Iterator[FilePart]:
        """A file that is replaced whole, where it has changed."""
        try:
            with (self.folder / name).open("rb") as file:
                state = os.fstat(file.fileno())
                now = state.st_ino, state.st_mtime_ns, state.st_size
                if self._seen.get(name) == now:
                    return
                if name.startswith("log/") and state.st_size > LOG_BYTES:
                    file.seek(-LOG_BYTES, os.SEEK_END)
                content = file.read()
        except FileNotFoundError:
            return
        self._seen[name] = now
        for start in range(0, max(len(content), 1), PART_BYTES):
            part = content[start : start + PART_BYTES]
            yield FilePart(name, start, part, start + PART_BYTES >= len(content))


class Incoming:
    """Writes the parts of a run folder of another machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, part: FilePart) -> None:
        """Write a part. Raises ValueError for a file that no run has, or one that does not follow the one before."""
        if not is_a_run_file(part.name):
            raise ValueError(f"sent a file that no run has: {part.name[:100]!r}")
        path = self.folder / part.name
        growing = path if part.name == JOURNAL else path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        with growing.open("ab") as file:
            if part.offset == 0 and growing != path:
                file.truncate(0)
            if file.seek(0, os.SEEK_END) != part.offset:
                raise ValueError(f"a part of {part.name} is missing before byte {part.offset}")
            file.write(part.content)
        if not part.last:
            return
        os.replace(growing, path)
        if part.name == SAMPLES:  # all its rounds are in there
            (self.folder / JOURNAL).unlink(missing_ok=True)
