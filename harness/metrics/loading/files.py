"""The file of the loading pass."""

from __future__ import annotations

from typing import Annotated

from ...store.declared import JsonFile
from ...store.forms import Amount, Count, Nanoseconds, Number, Shape, Size, Text, once, says


class Load(Shape):
    """A load of a checkpoint until every byte was read."""

    round: Annotated[Count, says("which round, from 0")]
    open_ns: Annotated[Nanoseconds, says("until the file was open, nanoseconds")]
    touched_ns: Annotated[Nanoseconds, says("until every byte was read, nanoseconds")]
    peak_bytes: Annotated[Number | None, says("most memory of the process")] = None


class FirstToken(Shape):
    """A load until the first token, and the same once more from memory."""

    round: Annotated[Count, says("which round, from 0")]
    open_ns: Annotated[Nanoseconds, says("until the file was open, nanoseconds")]
    build_ns: Annotated[Nanoseconds, says("to build the model, nanoseconds")]
    first_ns: Annotated[Nanoseconds, says("to the first token, nanoseconds")]
    build_again_ns: Annotated[Nanoseconds, says("to build a second model, nanoseconds")]
    first_again_ns: Annotated[Nanoseconds, says("to its first token, nanoseconds")]


class Loading(Shape):
    """A loader with a cold or a warm page cache."""

    checkpoint: Annotated[Text, says("which weights")]
    loader: Annotated[Text, says("what reads the file")]
    cache: Annotated[Text, says("cold or warm")]
    reason: Annotated[Text | None, says("why there are no loads")]
    variant: Annotated[Text | None, says("what runs to the first token")] = None
    prompt_tokens: Annotated[Size, says("length of the prompt before the first token")] = 0
    file_bytes: Annotated[Amount | None, says("size of the file")] = None
    loads: Annotated[list[Load], once("round"), says("one entry a round")]
    first_tokens: Annotated[list[FirstToken], once("round"), says("one entry a round")]


LOADING = JsonFile("loading.json", Annotated[list[Loading], once("checkpoint", "loader", "cache")])
