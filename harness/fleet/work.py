"""How a plan is divided over nodes: pieces, who takes the next one, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from ..plan.experiments import Plan
from ..spec.experiments import Experiment

PIECES_A_NODE = 3
"""About so many, so that nodes are done at about the same time; each costs the start of a measuring process."""

LEAST_SECONDS = 5.0
"""For a piece that comes late: each experiment has some rounds."""

MOST_TRIES = 3
"""A piece that so many machines could not do is given up."""


@dataclass(frozen=True)
class Piece:
    """Experiments that are measured in one go on one node. weight: how much there is to settle. rest: whether what
    needs no workload is looked at too. headline: whether a main claim waits for it."""

    experiments: tuple[Experiment, ...]
    rest: bool = False

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(each.workload.name for each in self.experiments)

    @property
    def weight(self) -> float:
        return float(sum(map(_weight, self.experiments))) or 0.1

    @property
    def headline(self) -> bool:
        return any(target.headline for each in self.experiments for target in each.targets)

    @property
    def select(self) -> dict[str, list[str]]:
        """Workload → its variants."""
        return {each.workload.name: list(each.variants) for each in self.experiments}

    @property
    def entered(self) -> dict[str, list[str]]:
        """Workload → its variants, and controls."""
        return {each.workload.name: list(each.entered()) for each in self.experiments}


Unit = tuple[Experiment, ...]
"""Experiments that only one machine can measure, all together."""


def _weight(experiment: Experiment) -> int:
    return 1 + len(experiment.targets) + len(experiment.contrasts)


def pieces_of(plan: Plan, nodes: int, *, without: Iterable[str] = (), rest: bool = True) -> list[Piece]:
    """Divide a plan, without the workloads that are measured already, for so many nodes; in the order in which they are
    best begun. Experiments on one geometry stay together where that leaves enough pieces: they share weights."""
    done = set(without)
    groups: dict[str, list[Unit]] = {}
    for unit in units_of(plan):
        left = tuple(each for each in unit if each.workload.name not in done)
        if left:
            groups.setdefault(left[0].workload.geometry or left[0].workload.name, []).append(left)
    pieces = [tuple(group) for group in groups.values()]
    while len(pieces) < PIECES_A_NODE * nodes:
        several = [units for units in pieces if len(units) > 1]
        if not several:
            break
        largest = max(several, key=lambda units: sum(map(_weight, chain(*units))))
        pieces.remove(largest)
        half = len(largest) // 2
        pieces += [largest[:half], largest[half:]]
    whole = (Piece((*chain(*piece),)) for piece in pieces)
    ordered = sorted(whole, key=lambda piece: (not piece.headline, -piece.weight))
    rest = rest and any(not part.workload_names() for part in plan.hypotheses())
    return [*ordered, *[Piece((), rest=True)] * rest]


def units_of(plan: Plan) -> list[Unit]:
    """The experiments of a plan, those together that one machine must measure: a trend is a value of several."""
    home = {each.workload.name: each.workload.name for each in plan.experiments}
    for part in plan.hypotheses():
        names = [name for name in part.workload_names() if name in home]
        if part.least_workloads > 1 and names:
            joined = {home[name] for name in names}
            home |= {name: home[names[0]] for name, place in home.items() if place in joined}
    units: dict[str, list[Experiment]] = {}
    for experiment in plan.experiments:
        units.setdefault(home[experiment.workload.name], []).append(experiment)
    return [tuple(unit) for unit in units.values()]


@dataclass
class Work:
    """What is still to be measured, for one answer: everything once, or everything on one kind of machine."""

    waiting: list[Piece]  # pieces that nobody has
    most_seconds: float  # how long a piece is measured at most
    pool_seconds: float = 0.0  # that nobody was given yet, of all nodes together
    taken: list[Piece] = field(default_factory=list)  # pieces that a node has
    tries: dict[tuple[str, ...], int] = field(default_factory=dict)  # pieces that failed, and how often
    given_up: list[Piece] = field(default_factory=list)  # pieces that no node could measure

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self.taken

    def take(self) -> tuple[Piece, float]:
        """The next piece, and for how many seconds it may be measured: its share of what is left."""
        piece = self.waiting.pop(0)
        self.taken.append(piece)
        weight = piece.weight + sum(each.weight for each in self.waiting)
        share = max(min(self.pool_seconds * piece.weight / weight, self.most_seconds), LEAST_SECONDS)
        self.pool_seconds -= share
        return piece, share

    def done(self, piece: Piece, unspent_seconds: float) -> None:
        """It was measured; the seconds that it did not need are there for others."""
        self.taken.remove(piece)
        self.pool_seconds += max(unspent_seconds, 0.0)

    def failed(self, piece: Piece, unspent_seconds: float, *, counts: bool) -> None:
        """It was not measured to its end; another node takes it next. counts: whether that may be its own fault."""
        self.done(piece, unspent_seconds)
        tries = self.tries[piece.workloads] = self.tries.get(piece.workloads, 0) + counts
        if tries >= MOST_TRIES:
            self.given_up.append(piece)
        else:
            self.waiting.insert(0, piece)
