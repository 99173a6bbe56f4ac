"""A folder at a URL (s3, gs, az, sftp, memory, ...): its files, and errors that name the URL and what to do.

fsspec finds the file system, and its library finds the credentials; none are read, kept or shown here. A file appears
whole or not at all: object stores put it so, elsewhere it is written under another name and moved.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..store.errors import RunError, first_line

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OBJECTS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory"}
"""Stores that put an object whole, and have no folders to make: making one there may make a bucket."""

_VERSIONS = ("ETag", "etag", "md5Hash", "checksum", "created", "updated", "mtime", "LastModified", "last_modified")


def key_of(text: str) -> str:
    """A short name for a text, for files and folders of the cache: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_url(text: object) -> bool:
    """Whether it names a place by a URL, and not a folder of this machine."""
    return bool(_URL.match(str(text)))


class PlaceError(RunError):
    """A place cannot be read or written. The text names its URL, what the library said, and what to do."""

    def __init__(self, url: str, problem: str, fix: str) -> None:
        super().__init__(Path(url), problem, fix)
        self.url = url
        self.args = (f"{url}: {problem}. {fix}",)  # a Path makes one slash of two


class Refused(PlaceError):
    """Nothing was written, for what lies there already."""


@dataclass(frozen=True)
class Remote:
    """A file at a place."""

    size: int
    version: str  # changes when it is written anew, as far as the file system tells


@dataclass(frozen=True)
class Place:
    """A folder at a URL. Its methods raise PlaceError."""

    url: str
    system: Any
    root: str

    @classmethod
    def at(cls, url: str) -> Place:
        """The folder at `url`. Looks at nothing there yet."""
        from fsspec.core import url_to_fs

        url = url if url.endswith("://") else url.rstrip("/")
        with as_place_error(url):
            system, root = url_to_fs(url, use_listings_cache=False)
        return cls(url, system, str(root).rstrip("/"))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.root.rpartition("/")[2]

    def parent(self) -> Place:
        """The folder that it lies in."""
        return Place(self.url.rpartition("/")[0], self.system, self.root.rpartition("/")[0])

    def folder(self, name: str) -> Place:
        """A folder in it."""
        return Place(f"{self.url}/{name}", self.system, f"{self.root}/{name}")

    def files(self) -> dict[str, Remote]:
        """All files in it and below, by their names relative to it; none where there is no such folder."""
        with as_place_error(self.url):
            try:
                there = self.system.find(self.root, detail=True)
            except FileNotFoundError:
                if self._has_bucket():
                    return {}
                raise
        inside = {path[len(self.root) :].lstrip("/"): facts for path, facts in there.items()}
        return {name: Remote(int(facts.get("size") or 0), _version(facts)) for name, facts in inside.items() if name}

    def folders(self) -> list[str]:
        """The names of the folders in it, without hidden ones; none where there is no such folder."""
        with as_place_error(self.url):
            try:
                there = self.system.ls(self.root, detail=True)
            except FileNotFoundError:
                return []
        names = (str(each["name"]).rstrip("/").rpartition("/")[2] for each in there if each["type"] == "directory")
        return sorted(name for name in names if name and not name.startswith("."))

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of those of these files that are there, fetched side by side where the store can."""
        paths = {f"{self.root}/{name}": name for name in names}
        with as_place_error(self.url):
            content: Mapping[str, Any] = self.system.cat(list(paths), on_error="return") if paths else {}
            for answer in content.values():
                if isinstance(answer, Exception) and not isinstance(answer, FileNotFoundError):
                    raise answer
        stripped = {self.system._strip_protocol(path): name for path, name in paths.items()}
        files = {stripped[path]: each for path, each in content.items() if path in stripped}
        return {name: each for name, each in files.items() if isinstance(each, bytes)}

    def get(self, files: Mapping[str, Path]) -> None:
        """Fetch files into paths of this machine, by their names here."""
        for target in files.values():
            target.parent.mkdir(parents=True, exist_ok=True)
        with as_place_error(self.url):
            if files:
                self.system.get([f"{self.root}/{name}" for name in files], [str(path) for path in files.values()])

    def put(self, files: Mapping[str, Path]) -> None:
        """Write files of this machine here, by the names that they get. Each appears whole or not at all."""
        with as_place_error(self.url):
            if self._is_object_store():
                if files:
                    self.system.put([str(path) for path in files.values()], [f"{self.root}/{name}" for name in files])
                return
            for name, path in files.items():
                target = PurePosixPath(self.root, name)
                self.system.makedirs(str(target.parent), exist_ok=True)
                aside = str(target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp"))
                try:
                    self.system.put_file(str(path), aside)
                    self.system.mv(aside, str(target))
                except BaseException:
                    with suppress(Exception):  # this error is the one to tell
                        self.system.rm_file(aside)
                    raise

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; one that is gone already is no error."""
        with as_place_error(self.url):
            for name in names:
                try:
                    self.system.rm_file(f"{self.root}/{name}")
                except FileNotFoundError:
                    continue

    def remove_folder(self) -> None:
        """Remove what is left of the folder, on file systems that have folders."""
        if not self._is_object_store():
            with as_place_error(self.url):
                self.system.rm(self.root, recursive=True)

    def _is_object_store(self) -> bool:
        protocol = self.system.protocol
        return bool(_OBJECTS & {protocol, *(() if isinstance(protocol, str) else protocol)})

    def _has_bucket(self) -> bool:
        """Whether the container of objects is there; file systems without containers have their root."""
        return not self._is_object_store() or bool(self.system.exists(self.root.lstrip("/").partition("/")[0]))


def _version(facts: Mapping[str, Any]) -> str:
    return next((str(facts[key]) for key in _VERSIONS if facts.get(key)), "")


# -- what a library says, in our words ---------------------------------------------------------------------------------


@contextmanager
def as_place_error(url: str) -> Iterator[None]:
    """Turn whatever a file system's library raises within the block into a PlaceError."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # each library has errors of its own
        problem, fix = _told(error)
        raise PlaceError(url, problem, fix) from error


def _told(error: Exception) -> tuple[str, str]:
    """The problem and the fix."""
    text = f"{type(error).__name__}: {first_line(error)}".rstrip(": ").rstrip(".")
    if isinstance(error, ImportError):
        package = _missing_package(error)
        return f"needs the package {package}", f"Install it: pip install {package}"
    if isinstance(error, ValueError) and "rotocol" in text:
        return text, "Use a URL such as s3://, gs://, az://, sftp:// or file://, or a plain path."
    kinds = " ".join(kind.__name__ for kind in (*type(error).__mro__, *type(error.__cause__).__mro__))
    if "Credential" in kinds or "Token" in kinds:
        return f"no credentials ({text})", "Give them as the store's own tools want them, such as AWS_PROFILE for S3."
    if isinstance(error, PermissionError) or "Forbidden" in kinds:
        return f"not allowed ({text})", "Check the credentials, and what they may do at this place."
    if isinstance(error, FileNotFoundError):
        return f"not there ({text})", "Check the name; a bucket must exist, the workbench makes none."
    if isinstance(error, (ConnectionError, TimeoutError)) or re.search("Connection|Timeout|Endpoint", kinds):
        return f"cannot be reached ({text})", "Check the address and the network."
    return f"the store refused ({text})", "Check the URL and the store."


def _missing_package(error: BaseException) -> str:
    """The package that a file system needs; fsspec raises its advice from the error of the import."""
    while error.__cause__ is not None and not getattr(error, "name", None):
        error = error.__cause__
    return str(getattr(error, "name", None) or "of this file system").partition(".")[0]
