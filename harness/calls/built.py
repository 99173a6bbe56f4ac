"""A variant from outside: the function that builds its model, from files that are imported for it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llama_workbench.variants import LlamaConfig, Model, Variant
from llama_workbench.variants.outside import described

from .called import maker
from .source import Source
from .world import World, WorldTurn, folders_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Built:
    """`build` of a variant. Its model must run in the same world, so `enter` goes before what may import more."""

    world: World
    function: Callable[..., Any]

    def enter(self) -> None:
        """From here on imports find the variant's own modules."""
        self.world.enter()

    def __call__(self, config: LlamaConfig, weights: Mapping[str, Tensor], *, max_length: int) -> Model:
        self.enter()
        model: Model = self.function(config, weights, max_length=max_length)
        return model


def imported(source: Source, turn: WorldTurn) -> Variant:
    """The variant, imported once more; the code of its file runs here. Raises OutsideVariantError."""
    world = World(turn, folders_of([source]))
    function = maker(source, world.function(source))()
    return described(Variant(source.name, Built(world, function), source.shown, f"outside: {source.shown}"), function)
