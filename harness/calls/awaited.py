"""A coroutine function as one that is called: on an event loop of its own, what it awaits included."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Awaited:
    """Runs the coroutine of each call to its end. `many` begins the loop once: that takes longer than many a call."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]], loop: AbstractEventLoop) -> None:
        self._function, self._loop = function, loop

    def __call__(self, *arguments: Any) -> Any:
        return self._loop.run_until_complete(self._function(*arguments))

    def many(self, inputs: Iterable[tuple[Any, ...]]) -> Any:
        """One call after another; the answer of the last."""

        async def calls() -> Any:
            out = None
            for arguments in inputs:
                out = await self._function(*arguments)
            return out

        return self._loop.run_until_complete(calls())


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether a call of it must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Loop:
    """The event loop of one side, made when it is first needed. It is kept: a loop that is closed closes files, and who
    does that while it is timed is left out."""

    def __init__(self) -> None:
        self._loop: AbstractEventLoop | None = None

    def called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or what runs it where it is a coroutine function."""
        if not is_coroutine(function):
            return function
        import asyncio  # only where there is a coroutine: it takes 50 ms

        self._loop = self._loop or asyncio.new_event_loop()
        return Awaited(function, self._loop)
