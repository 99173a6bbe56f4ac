"""The words of verdicts, and one table of how each is told and shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType


class Word(StrEnum):
    """What can become of an effect or of a part of a claim, in the order in which rows are told. The last four are no
    verdicts: what rows are that nobody asked about, and how controls came out."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    DEPENDS = "depends"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not tested"
    NOT_EVIDENCE = "not evidence"
    NOT_MEASURABLE = "not measurable here"
    NOT_ASKED = "not asked"
    PASSED = "passed"
    FIRED = "fired"

    @property
    def look(self) -> Appearance:
        """How it is told and shown."""
        return LOOKS[self]


UNDERSTATED = "understated"
"""Of a refuted claim that is wrong because the truth is more than it says."""

SETTLED = (Word.SUPPORTED, Word.REFUTED, Word.FASTER, Word.SLOWER, Word.SAME)
"""What one effect can settle; the last three are of a comparison without a claim."""

GIVEN = (*SETTLED, Word.DEPENDS)
"""Verdicts that say something about what was claimed or asked, and may be wrong."""


@dataclass(frozen=True)
class Appearance:
    """How one verdict is told and shown: always a word and an icon beside the colour."""

    word: str  # its title
    icon: str  # Material Symbols name
    colour: str  # Streamlit's name; the theme maps it to a colour-blind-safe one
    symbol: str  # plotly marker
    meaning: str  # one clause, after "word: "; {claimed} is what was claimed
    terminal: str = ""  # colour in a terminal
    row: str = ""  # what a row is counted as
    answer: str = ""  # to a question
    start: str = ""  # how the reason of a settled verdict begins


def _whole(place: str) -> str:
    return f"the whole interval lies {place} ({{claimed}})"


INSIDE, OUTSIDE = "inside the claimed range", "outside the claimed range"

LOOKS: Mapping[Word, Appearance] = {
    Word.SUPPORTED: Appearance(
        "Supported", "check_circle", "green", "circle", _whole(INSIDE), "green", "supported", "Yes", INSIDE
    ),
    Word.REFUTED: Appearance("Refuted", "cancel", "red", "x-thin", _whole(OUTSIDE), "red", "refuted", "No", OUTSIDE),
    Word.DEPENDS: Appearance(
        "Depends", "call_split", "violet", "diamond", "it holds in some places and not in others",
        "magenta", "depends", "It depends",
    ),
    Word.INCONCLUSIVE: Appearance(
        "Inconclusive", "help", "gray", "circle-open", "the data do not decide it",
        "yellow", "inconclusive", "Inconclusive",
    ),
    Word.NOT_TESTED: Appearance(
        "Not tested", "hourglass_empty", "gray", "circle-open", "the run had no time for it",
        "bright_black", "not tested", "Not tested",
    ),
    Word.NOT_EVIDENCE: Appearance(
        "Not evidence", "block", "orange", "square-open", "it cannot speak for or against the claim",
        "yellow", "no evidence", "Not answered",
    ),
    Word.NOT_MEASURABLE: Appearance(
        "Not measurable here", "do_not_disturb_on", "gray", "square-open", "this machine cannot measure it",
        "yellow", "not measurable", "Not measured",
    ),
    Word.FASTER: Appearance(
        "Faster", "fast_forward", "green", "triangle-right", "the whole interval lies above 1",
        "green", "faster", "Yes", "faster",
    ),
    Word.SLOWER: Appearance(
        "Slower", "fast_rewind", "red", "triangle-left", "the whole interval lies below 1",
        "red", "slower", "No", "slower",
    ),
    Word.SAME: Appearance(
        "Same", "drag_handle", "blue", "circle", _whole("within the margin"), "cyan", "the same", "No", "same"
    ),
    Word.NOT_ASKED: Appearance("Not asked", "remove", "blue", "square", "nobody claimed anything of it"),
    Word.PASSED: Appearance("Passed", "verified", "gray", "star", "a control: no difference, as expected"),
    Word.FIRED: Appearance("Fired", "warning", "red", "cross", "a control: identical code came out as different"),
}  # fmt: skip
"""By verdict, in the order in which they are counted; the last three are no verdicts."""

COUNTED = tuple(
    name for word in LOOKS for name in ((word.value, UNDERSTATED) if word is Word.REFUTED else (word.value,))
)
"""Words of verdicts in the order in which it is said how many there are of each."""


class Cause(StrEnum):
    """Why an effect or a verdict is as it is, where its interval does not say it. For code; people read the reason."""

    NONE = "none"
    NO_ROUNDS = "no rounds"
    TOO_FEW_ROUNDS = "too few rounds"
    ACROSS_LIMIT = "across a limit"
    UNSTABLE = "unstable"
    DEPENDENT = "dependent"
    CONFOUNDED = "confounded"
    EXCLUDED = "excluded"
    BEYOND_ROOF = "beyond roof"
    NOT_IMPORTED = "not imported"
    REFUSED = "refused"
    TOO_LITTLE_TIME = "too little time"
    NOT_MEASURED = "not measured"
    NOT_SETTLED = "not settled"
    MACHINES_DIFFER = "machines differ"

    @property
    def is_doubtful(self) -> bool:
        """Whether the interval cannot be taken for what is true."""
        return self in (Cause.UNSTABLE, Cause.DEPENDENT, Cause.CONFOUNDED)

    @property
    def is_too_early(self) -> bool:
        """Whether there was too little time for any interval."""
        return self in (Cause.NO_ROUNDS, Cause.TOO_FEW_ROUNDS)

    @property
    def is_wrong(self) -> bool:
        """Whether a side is left out because it gives no right answer: another one, or none at all."""
        return self in (Cause.EXCLUDED, Cause.NOT_IMPORTED)

    @property
    def leaves_out(self) -> bool:
        """Whether a side is left out: for that, or because it is refused or there is no time for it."""
        return self.is_wrong or self in (Cause.BEYOND_ROOF, Cause.REFUSED, Cause.TOO_LITTLE_TIME)


# The two sides of the dispute, as effects and claims name them.


ARCHITECTURE, OPERATIONS, TOTAL = "architecture", "operations", "total"
"""The two sides of the split, and their sum: from the all-old corner of a grid to the all-new one."""

SIDES = (ARCHITECTURE, OPERATIONS, TOTAL)


def due_to(gaining: Iterable[str]) -> str:
    """What a speed-up is due to, by the sides that gain: one of them, both or neither."""
    names = tuple(gaining)
    return "both" if len(names) == 2 else names[0] if names else "neither"


def factor_of(variant: str, baseline: str) -> str:
    """The factor, interaction or side whose effect is reported as "NAME new" against "NAME old"; "" for other sides."""
    name = variant.removesuffix(" new")
    return name if (variant, baseline) == (f"{name} new", f"{name} old") else ""


# How commands end: their exit codes, and what each one means. Every help and every document has them from here.


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
    NOT_MEASURED = 3, "an error: measuring failed"
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
