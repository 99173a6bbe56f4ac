"""How commands end: their exit codes, and what each one means. Every help and every document has them from here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from types import MappingProxyType

from .words import Cause


class _Meant(IntEnum):
    """A code with its meaning in a few words."""

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> _Meant:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    @classmethod
    def listed(cls, more: Mapping[int, str] = MappingProxyType({})) -> str:
        """All of them, one on a line, as a help shows them. more: code → what a command says of it itself."""
        width = max(len(str(code.value)) for code in cls)
        return "\n".join(f"  {code.value:<{width}}  {more.get(code, code.meaning)}" for code in cls)


WRONG = "code that you named is excluded: its results are wrong, or it raises, hangs or ends its process"
NO_VERDICT = "no verdict: code is refused (the reason is printed), or the budget is too small"


class SessionExit(_Meant):
    """Of a session of `pytest --benchmark` that measures."""

    DONE = 0, "success, whatever the verdicts are"
    CONDITION_MET = 1, "a condition of --fail-if is met, or a test of yours failed"
    INTERRUPTED = 2, "interrupted (Ctrl-C): what was measured is kept, and has verdicts"
    NOT_MEASURED = 3, "an error: measuring or publishing failed"
    USAGE = 4, "an option is wrong"
    NOTHING = 5, "nothing to measure"
    WRONG = 6, WRONG
    NO_VERDICT = 7, NO_VERDICT


class VerbExit(_Meant):
    """Of `workbench VERB`. The help of a verb says more of some of them."""

    DONE = 0, "success"
    AGAINST = 1, "the answer is no, such as slower: proven"
    COULD_NOT = 2, "inconclusive, or an error: the reason is printed"
    WRONG = 6, WRONG
    NO_VERDICT = 7, NO_VERDICT
    INTERRUPTED = 130, "interrupted (Ctrl-C)"


def of_left_out(causes: Collection[Cause]) -> int:
    """The code of a comparison whose sides were left out for these causes; 0 where none was."""
    if any(cause.is_wrong for cause in causes):
        return VerbExit.WRONG
    return VerbExit.NO_VERDICT if any(cause.leaves_out for cause in causes) else VerbExit.DONE
