"""Names under which variants take part: NAME, or NAME once more as a control, `NAME@aa` or `NAME@copy`.

This is the only place that puts such a name together or takes it apart.
"""

from __future__ import annotations

AA, COPY = "aa", "copy"
"""The same variant once more, and an identical copy of it."""


class EnteredName(str):
    """The name of a variant or of a control; a text like any other to whoever writes it down."""

    __slots__ = ()

    @classmethod
    def of_control(cls, original: str, control: str) -> EnteredName:
        """The control of this kind."""
        return cls(f"{original}@{control}")

    @property
    def original(self) -> str:
        """The variant that it is, or is once more."""
        return self.partition("@")[0]

    @property
    def control(self) -> str:
        """The kind of control; "" for the variant itself."""
        return self.partition("@")[2]

    @property
    def is_control(self) -> bool:
        """Whether it is a variant once more. (The yardstick has a name of its own.)"""
        return "@" in self

    @property
    def identifier(self) -> str:
        """A name of its own that Python takes for a module's."""
        return self.replace("@", "_")
