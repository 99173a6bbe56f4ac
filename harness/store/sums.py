"""The checksums of a finished run: what its files held when they were written, so that any later change is noticed.

run.json ends with `"checksums"`: the SHA-256 of each data file by its name in the folder, and under its own name that
of all before `"checksums"` and of the other entries. Near its beginning it says `"sealed": true`, so that a run whose
checksums are gone is not taken for one from before there were any. Pure functions of bytes, but for `of_files`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

KEY, SEALED = "checksums", "sealed"
_MARK = f'\n "{KEY}": {{'.encode()  # one space: only a key of the outermost object is so far to the left
_TRACE = re.compile(rb'"sealed"\s*:\s*true|"checksums"\s*:\s*\{\s*"run\.json"')


@dataclass(frozen=True)
class Sums:
    """What run.json says of the files beside it.

    own: SHA-256 of all before its checksums. intact: whether run.json is as it was sealed.
    """

    own: str
    files: Mapping[str, str]
    intact: bool


def sealed(manifest: Mapping[str, Any], files: Mapping[str, str], name: str) -> bytes:
    """The bytes of run.json, which is called `name`, with these checksums; `manifest` in plain and finite types."""
    rest = {key: value for key, value in manifest.items() if key not in (KEY, SEALED)}
    text = json.dumps({SEALED: True, **rest}, indent=1, ensure_ascii=False, allow_nan=False)
    return _joined(f"{text.removesuffix('}').rstrip()},".encode(), files, name)


def renewed(content: bytes, changed: Mapping[str, str], name: str) -> bytes | None:
    """The same run.json with other checksums for some files; None where it has none, or is not what was sealed."""
    sums = read(content, name)
    if sums is None or not sums.intact:
        return None
    return _joined(content.rpartition(_MARK)[0], {**sums.files, **changed}, name)


def _joined(body: bytes, files: Mapping[str, str], name: str) -> bytes:
    others = {file: files[file] for file in sorted(files) if file != name}
    lines = ",\n".join(map(_line, [name, *others], [_of_all(body, others), *others.values()]))
    return body + _MARK + f"\n{lines}\n }}\n}}\n".encode()


def _line(file: str, digest: str) -> str:
    return f"  {json.dumps(file)}: {json.dumps(digest)}"


def _of_all(body: bytes, others: Mapping[str, str]) -> str:
    """What run.json has under its own name."""
    return of(body + "\n".join(map(_line, others.keys(), others.values())).encode())


def read(content: bytes, name: str) -> Sums | None:
    """The checksums in the bytes of run.json; None for a run from before there were any."""
    body, mark, rest = content.rpartition(_MARK)
    if not mark:
        return Sums(of(content), {}, intact=False) if _TRACE.search(content) else None
    try:
        files = json.loads(b"{" + rest.strip().removesuffix(b"}"))
    except (ValueError, RecursionError):
        files = None
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        return Sums(of(body), {}, intact=False)
    listed = {file: digest for file, digest in files.items() if file != name}
    intact = files.get(name) == _of_all(body, listed) and all(map(_inside, files))
    return Sums(of(body), listed, intact)


def _inside(file: str) -> bool:
    path = PurePosixPath(file)
    return not path.is_absolute() and ".." not in path.parts


def of(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def of_files(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each of these files that is there. Raises OSError."""
    digests = {}
    for file in files:
        if (path := folder / file).is_file():
            with path.open("rb") as handle:
                digests[file] = hashlib.file_digest(handle, "sha256").hexdigest()
    return digests
