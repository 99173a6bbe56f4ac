"""What rounds and the beginning of processes took, and what follows from it for the next ones."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SIDE_SECONDS, MOST_SIDE_SECONDS = 0.03, 0.25

FIRST_LIVES, FIRST_SIDE_SECONDS = 4, 0.1
"""So many lives of functions are short: after them a large difference is seen (`stats.confidence.EARLY`)."""


@dataclass
class LifePace:
    """How long a life of functions samples each of so many sides: for a quarter of a second, or for what is left of
    `life_seconds` beside all else that a life takes, by the lives so far. What beginning one takes is then a small part
    of it, and what is left of the noise within it little beside what lives differ by. The first ones are shorter.
    lives: how many there were."""

    life_seconds: float
    sides: int
    beside_seconds: float | None = None
    lives: int = 0

    @property
    def side_seconds(self) -> float:
        """Of samples of each side, in the next life."""
        return min(self.usual_seconds, FIRST_SIDE_SECONDS) if self.lives < FIRST_LIVES else self.usual_seconds

    @property
    def usual_seconds(self) -> float:
        """The same, of one that is not short."""
        beside = self.life_seconds / 2 if self.beside_seconds is None else self.beside_seconds
        least, most = LEAST_SIDE_SECONDS, MOST_SIDE_SECONDS
        return min(max((self.life_seconds - beside) / max(self.sides, 1), least), most)

    def note(self, beside_seconds: float) -> None:
        """What a life took beside the samples of what is compared."""
        before = beside_seconds if self.beside_seconds is None else self.beside_seconds
        self.beside_seconds = (before + beside_seconds) / 2
        self.lives += 1

    def saved(self, lives: float) -> float:
        """How many seconds less the next so many lives sample each side than usual ones."""
        short = min(lives, max(FIRST_LIVES - self.lives, 0))
        return short * max(self.usual_seconds - FIRST_SIDE_SECONDS, 0.0)


@dataclass
class Tally:
    """How many rounds there were, and what they took."""

    rounds: int = 0
    seconds: float = 0.0
    first_seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """One more round."""
        self.rounds += 1
        self.seconds += seconds
        if self.rounds == 1:
            self.first_seconds = seconds

    def each(self, expected: float) -> float:
        """About how many seconds a round takes: as those before, or as `expected`.

        The first asks the system for all the memory that later ones find there, and takes longer.
        """
        if self.rounds > 1:
            return (self.seconds - self.first_seconds) / (self.rounds - 1)
        return self.first_seconds / 2 if self.rounds else expected


@dataclass
class Begin:
    """What beginning a process of a group takes, in seconds: as the last ones did. beside: whether the next one begins
    while one measures."""

    seconds: float = 0.0
    beside: bool = False

    def note(self, seconds: float) -> None:
        """One more has begun. The first find less in the caches of the machine than those after them."""
        self.seconds = (self.seconds + seconds) / 2 if self.seconds else seconds
