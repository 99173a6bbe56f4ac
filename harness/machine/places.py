"""Whose file it is: paths as profiles and phase maps name them, by known roots and never by this machine's folders.

| what | becomes |
|---|---|
| a file of the workbench | `variants/modular/attention.py`, `harness/worker/main.py` |
| torch, its native libraries included | `torch/nn/functional.py`, `torch/lib/libtorch_cpu.so` |
| another installed package | `site-packages/transformers/models/llama/modeling_llama.py` |
| Python's own library | `stdlib/contextlib.py` |
| a variant given by `--add-variant`, and files beside it | `added/mine.py` |
| anything else | `elsewhere/libc.so.6`: the file's own name alone |

What is no path (`<string>`, `<frozen importlib._bootstrap>`) stays as it is.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from llama_workbench import ROOT

_OURS = ("variants", "datasets", "harness")
_INSTALLED = ("site-packages", "dist-packages")


def place(path: str, added: Sequence[Path] = ()) -> str:
    """The name of the file at `path`, as in the table above. `added` are the files of variants from outside."""
    if path.startswith("<"):
        return path
    parts = path.replace("\\", "/").split("/")
    if len(parts) == 1:
        return path
    real = Path(path).resolve()
    for name in _OURS:
        if real.is_relative_to(ROOT / name):
            return f"{name}/{real.relative_to(ROOT / name).as_posix()}"
    installed = max((index for index, part in enumerate(parts) if part in _INSTALLED), default=None)
    if installed is not None and parts[installed + 1 :]:
        rest = "/".join(parts[installed + 1 :])
        return rest if parts[installed + 1] == "torch" else f"site-packages/{rest}"
    for root in (Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")):
        if real.is_relative_to(root):
            return f"stdlib/{real.relative_to(root).as_posix()}"
    for folder in (file.resolve().parent for file in added):
        if real.is_relative_to(folder):
            return f"added/{real.relative_to(folder).as_posix()}"
    return f"elsewhere/{parts[-1]}"


def called_as() -> list[str]:
    """How this process was called, as `published` has it."""
    program = "pytest" if "pytest" in sys.argv[0] else os.path.basename(sys.argv[0])
    return [program, *map(published, sys.argv[1:])]


def as_typed(command: Sequence[str]) -> list[str]:
    """A command as a run keeps it; with the folders that were typed where it is this process that was called so."""
    return [*command[:1], *sys.argv[1:]] if list(command) == called_as() else list(command)


def with_folders(words: Iterable[str], typed: Sequence[str]) -> list[str]:
    """Words of a command, as `published` leaves them, with the folders that were typed: those of the same word, or of a
    file of that name where it was typed in one folder alone."""
    whole = {published(word): word for word in typed}
    folders: dict[str, set[str]] = {}
    for path in re.findall(r"(?:[^\s=,:]*/)+[^/\s=,:@]+\.[^/\s=,:@]+", " ".join(typed)):
        folders.setdefault(Path(path).name, set()).add(path)
    typed_once = {name: path for name, (path, *others) in folders.items() if not others}
    file = re.compile(r"(?<![^\s=,:])[^/\s=,:@]+(?![^\s=,:@])")
    return [whole.get(word) or file.sub(lambda found: typed_once.get(found[0], found[0]), word) for word in words]


def published(text: str) -> str:
    """A text without what tells of machines: of a path only the last part, of a cluster's address only `ray`, and no
    numeric address."""
    text = re.sub(r"ray://[^\s,;)]+", "ray", text)
    text = re.sub(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "ADDRESS", text)
    return re.sub(r"(?:[^\s=,:]*/)+([^/\s=,:]+)", r"\1", text)
