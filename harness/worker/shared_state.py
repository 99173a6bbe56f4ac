"""One thing that all code in a process shares: how to see that somebody changed it, and how to put it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

GRADIENTS = "whether gradients are on"
"""The one setting of torch that is another one while any functions are called."""


OF_BINDINGS = "__pybind11_"
"""How names begin that pybind11 adds to the built-in ones, for all modules compiled with it: no one looks them up."""


GONE = object()
"""Stands for what a name stands for that was removed."""


class Watched(NamedTuple):
    """One setting that all code in the process shares: how to read it, and how to restore it (None: impossible)."""

    what: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any] | None = None


class Names:
    """Everything that a module or class holds, or these `names` of it, to detect what was replaced."""

    def __init__(self, what: str, owner: Any, names: list[str] | None = None) -> None:
        self.what, self.owner, self.names = what, owner, names
        self.content = vars(owner)  # bound here: foreign code may replace `vars`
        self.save()

    def save(self) -> None:
        """Take the present content for the right one."""
        self.saved = dict(self.content) if self.names is None else {name: self.content[name] for name in self.names}

    def changed(self) -> list[str]:
        """Names that were replaced, added or removed; they are restored."""
        return [*self.taken()]

    def taken(self) -> dict[str, Any]:
        """The same, each with what it stood for (GONE: nothing any more)."""
        content = self.content
        self.saved |= {
            name: content[name] for name in content if name.startswith(OF_BINDINGS) and name not in self.saved
        }
        if self.names is None and content == self.saved:
            return {}
        replaced = [name for name, value in self.saved.items() if content.get(name, GONE) is not value]
        added = [name for name in content if name not in self.saved] if self.names is None else []
        stood_for = {name: content.get(name, GONE) for name in (*replaced, *added)}
        for name in stood_for:
            self.put(name, self.saved.get(name, GONE))
        return stood_for

    def put(self, name: str, value: Any) -> None:
        """Let a name stand for a value, or for nothing (GONE)."""
        if value is GONE:
            delattr(self.owner, name)
        else:
            setattr(self.owner, name, value)
