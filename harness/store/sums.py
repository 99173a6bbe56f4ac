"""SHA256SUMS: the checksum of every file of a run that has ended, as `sha256sum --check SHA256SUMS` reads it.

From then on a file that is not what the run wrote raises `ChangedFile`. A run that goes on has no checksums yet; one
that has ended says `"sealed": true` in its run.json, so that checksums which are gone are missed.

    python -m llama_workbench.harness.store.sums RUN ...

writes the checksums of these runs anew, over what lies there now.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .errors import RESTORE, ChangedFile, as_run_error
from .files import JOURNAL, JUDGED_ANEW, MANIFEST, SUMS, data_files, fix_of, read_bytes, replace_whole

CHANGED = "its content is not what the run wrote"
GONE = "missing, and the run wrote it"
_LINE = re.compile(r"([0-9a-f]{64})  (?!/)((?!.*(?:^|/)\.\.(?:/|$)).+)")


@dataclass(frozen=True)
class Sums:
    """The checksums of one run folder. Making the value touches nothing."""

    path: Path

    def known(self) -> Mapping[str, str] | None:
        """SHA-256 of every file of the run by its name, run.json's too; None where it has not ended.

        Raises ChangedFile where they are gone, cannot be read, or do not fit run.json.
        """
        if not (self.path / MANIFEST).exists():
            return None
        listing = read_bytes(self.path / SUMS) if (self.path / SUMS).exists() else None
        sums = _told(read_bytes(self.path / MANIFEST), listing)
        if sums.wrong:
            raise ChangedFile(self.path / sums.wrong, GONE if listing is None else CHANGED, RESTORE)
        return sums.files

    def check(self, name: str, content: bytes) -> None:
        """Raise ChangedFile where this is not the content that the run wrote into a file."""
        if (known := self.known()) is not None:
            self._compare(known, name, sha256(content), there=True)

    def check_there(self, name: str, there: bool) -> None:
        """Raise ChangedFile where the run wrote such a file and it is gone, or the reverse."""
        if (known := self.known()) is not None:
            self._compare(known, name, known.get(name), there)

    def changed(self, besides: Collection[str] = ()) -> list[ChangedFile]:
        """The files that are not what the run wrote; none where it has not ended. Reads all but `besides`.

        Raises RunError where a file cannot be read at all.
        """
        try:
            known = self.known()
        except ChangedFile as error:
            return [error]
        if known is None:
            return []
        # Of a file that is not listed only the name is reported: it need not be read.
        names = [name for name in dict.fromkeys([*known, *data_files(self.path), JOURNAL]) if name not in besides]
        now = self.of(name for name in names if name in known)
        changed = []
        for name in names:
            try:
                self._compare(known, name, now.get(name), (self.path / name).is_file())
            except ChangedFile as error:
                changed.append(error)
        return changed

    def read_text(self, name: str, largest_bytes: int) -> str:
        """The text of a file below the folder, by the name that another file has for it.

        Raises ValueError where that leads out of the folder, or where the file is larger, and OSError.
        """
        path, home = (self.path / name).resolve(), self.path.resolve()
        if not path.is_relative_to(home):
            raise ValueError("the path leads out of the run folder")
        if path.stat().st_size > largest_bytes:
            raise ValueError(f"larger than {largest_bytes >> 20} MiB")
        content = path.read_bytes()
        self.check(path.relative_to(home).as_posix(), content)
        return content.decode("utf-8")

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """SHA-256 of each of these files that is there, as it lies here."""
        digests = {}
        with as_run_error(self.path):
            for name in names:
                if (path := self.path / name).is_file():
                    with path.open("rb") as handle:
                        digests[name] = hashlib.file_digest(handle, "sha256").hexdigest()
        return digests

    def write(self, manifest: bytes, renewed: Collection[str] | None = None) -> None:
        """Write run.json with this content, and SHA256SUMS; of the others only those of `renewed` are read anew."""
        earlier = self.known() or {} if renewed is not None else {}
        files = {
            **earlier,
            **self.of(data_files(self.path) if renewed is None else renewed),
            MANIFEST: sha256(manifest),
        }
        listing = "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()
        contents = {SUMS: listing, MANIFEST: manifest}
        writes = {name: _writer(content) for name, content in contents.items() if not self._holds(name, content)}
        replace_whole(self.path, writes)

    def _holds(self, name: str, content: bytes) -> bool:
        path = self.path / name
        return path.is_file() and read_bytes(path) == content

    def _compare(self, known: Mapping[str, str], name: str, now: str | None, there: bool) -> None:
        fix = fix_of(self.path, name)
        if name in known and not (there and now == known[name]):
            raise ChangedFile(self.path / name, CHANGED if there else GONE, fix)
        if name not in known and there:
            fix = fix if name in JUDGED_ANEW else "Move it out of the folder, or measure again."
            raise ChangedFile(self.path / name, f"the run did not write it ({SUMS} does not list it)", fix)


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _writer(content: bytes) -> Any:
    return lambda temporary: temporary.write_bytes(content)


@dataclass(frozen=True)
class _Told:
    """What run.json and SHA256SUMS say together: the checksums, or which of the two cannot be what the run wrote."""

    files: Mapping[str, str] | None = None
    wrong: str = ""


@lru_cache(maxsize=8)
def _told(manifest: bytes, listing: bytes | None) -> _Told:
    if listing is None:
        return _Told(wrong=SUMS if _facts(manifest).get("sealed") is True else "")
    *whole, rest = listing.decode("utf-8", errors="replace").split("\n")
    lines = [_LINE.fullmatch(line) for line in whole]
    files = {line[2]: line[1] for line in lines if line}
    if rest or len(files) < len(lines) or MANIFEST not in files:
        return _Told(wrong=SUMS)
    if files[MANIFEST] == sha256(manifest):
        return _Told(files)
    # A kill may come between the two: then the run goes on as if it had not been sealed yet.
    return _Told(wrong="" if _facts(manifest).get("status") == "running" else MANIFEST)


def _facts(manifest: bytes) -> Mapping[str, Any]:
    try:
        facts = json.loads(manifest)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        Sums(folder).write(read_bytes(folder / MANIFEST))
