"""Each side's modules: imported for it alone, and known to Python only while it is that side's turn.

Two revisions of one package have modules of the same names, and so have two folders with a `helper.py` each. Whichever
was imported first would serve both.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module, invalidate_caches
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from llama_workbench.variants.outside import import_file

from .command import AS_THEY_ARE, Command, CommandSettings, Import
from .source import Source, SourceError, function_in

INSTALLED = ("site-packages", "dist-packages")


@dataclass
class WorldTurn:
    """Whose turn it is."""

    world: World | None = None

    def end(self) -> None:
        """From here on Python knows no world's modules."""
        if self.world is not None:
            self.world.leave()


@dataclass
class World:
    """Modules from some folders. Those that are installed, and Python's own, belong to all worlds."""

    turn: WorldTurn
    folders: tuple[str, ...]  # where modules are looked for first, and from where they are this world's own
    own: dict[str, ModuleType] = field(default_factory=dict)
    files: dict[str, ModuleType] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)  # names of modules that are not its own, when it was last entered

    def enter(self) -> None:
        """From here on imports find this world's modules, until another world is entered."""
        if self.turn.world is self:
            return
        self.turn.end()
        self.turn.world = self
        if not self.others:  # what was imported before this world was there is none of its own
            for name in [name for name, module in sys.modules.items() if self._owns(module)]:
                del sys.modules[name]
            invalidate_caches()
        sys.path[:0] = self.folders
        self.others = sys.modules.keys() - self.own
        sys.modules.update(self.own)

    def leave(self) -> None:
        """Take this world's modules, and its folders, away again."""
        self.turn.world = None
        for name in sys.modules.keys() - self.others:
            if name in self.own or self._owns(sys.modules[name]):
                self.own[name] = sys.modules.pop(name)
        for folder in self.folders:  # once: it may have been among them before
            with suppress(ValueError):
                sys.path.remove(folder)

    def _owns(self, module: ModuleType) -> bool:
        """Whether a module lies in one of the folders, and is not installed there."""
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        if (
            not isinstance(file, str)
            or file.endswith(NATIVE)
            or module.__name__.partition(".")[0] == __package__.partition(".")[0]
        ):
            return False
        inside = any(file.startswith(f"{folder}/") for folder in self.folders)
        return inside and not any(f"/{name}/" in file for name in INSTALLED) and not file.startswith(STANDARD)

    def function(self, source: Source, commands: CommandSettings = AS_THEY_ARE) -> Callable[..., Any]:
        """The function of a source, imported into this world; the code of its file runs here. commands: how it is run
        where it is a command. Raises OutsideVariantError."""
        if source.module:
            return Import(source.module)
        if source.command:
            return Command(shlex.split(source.command), commands, source.variables)
        self.enter()
        return function_in(self._module(source), source)

    def _module(self, source: Source) -> ModuleType:
        if source.is_file:
            if source.where not in self.files:
                self.files[source.where] = module = import_file(Path(source.where))
                self.own[module.__name__] = module
            return self.files[source.where]
        try:
            module = import_module(source.where)
        except Exception as error:
            raise SourceError(f"{source.where}: importing it raised {type(error).__name__}: {error}") from error
        if source.revision and not self._owns(module):  # or one installed module would stand for all revisions
            fault = f"{source.shown}: the revision has no such module in this folder, nor in its src/"
            raise SourceError(f"{fault}, and the installed one does not belong to a revision: give FILE:FUNCTION@REV")
        return module


@contextmanager
def modules_kept() -> Iterator[WorldTurn]:
    """A turn for worlds, after which Python knows the modules that it knew before."""
    turn, before = WorldTurn(), dict(sys.modules)
    try:
        yield turn
    finally:
        turn.end()
        sys.modules.update(before)


NATIVE = tuple(EXTENSION_SUFFIXES)  # modules of native code can be loaded once in a process: they belong to all worlds

STANDARD = f"{sysconfig.get_path('stdlib')}/"


def folders_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """Where the modules of these sources, and those beside them, are looked for: those of the first source first."""
    folders = [folder for source in sources for folder in source.folders]
    return tuple(dict.fromkeys(folder for folder in folders if not folder.startswith(STANDARD)))
