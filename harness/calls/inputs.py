"""What a call does to its input: digests of it before and after, and copies of what is handed out again.

A digest is of what an object gives away to be copied. So it sees lists, arrays, tables, objects of own classes, and how
far an iterator over a list was read. A generator or an open file gives nothing away: then a digest says that something
cannot be seen.
"""

from __future__ import annotations

import copy
import hashlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})

CONSTANT = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType, type)
"""What is taken by its name: its state, if it has any, is no input."""

HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__slots__", "__getnewargs__", "__getnewargs_ex__")
"""With none of these a class of Python code leaves it to Python how its objects are copied: by their attributes."""


class _Bare:
    """A class of Python code, whose objects hold nothing but attributes: they are as small as these."""


class Seen:
    """What can be seen of a value.

    digest: the same for the same content; empty where something of it cannot be seen. held: by id, what has a state of
    its own, which a call may change. can_copy: whether a copy of it is harmless, as far as is known.
    """

    def __init__(self, value: Any) -> None:
        self.held: dict[int, Any] = {}
        self.can_copy = self._is_whole = True
        self._total = hashlib.blake2b(digest_size=16)
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # what is looked at stays alive, or another object could get its id
        self._ways: dict[
            type, tuple[Callable[[Any], None], bytes]
        ] = {}  # how values of a type are looked at, and its name
        try:
            self._value(value)
        except RecursionError:
            self._is_whole = self.can_copy = False
        self.digest = self._total.hexdigest() if self._is_whole else ""

    def _value(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self._plain(value)
            return
        place = self._places.setdefault(id(value), len(self._places))
        if place < len(self._kept):
            self._total.update(b"again %d" % place)
            return
        self._kept.append(value)
        if kind not in self._ways:
            self._ways[kind] = self._way(kind), kind.__qualname__.encode()
        way, name = self._ways[kind]
        self._total.update(name)
        way(value)

    def _way(self, kind: type) -> Callable[[Any], None]:
        """How values of a type are looked at."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        ways: dict[type, Callable[[Any], None]] = {
            tuple: self._items,
            frozenset: self._set,
            list: self._list,
            set: self._set,
            dict: self._dict,
            bytearray: self._bytes,
            memoryview: self._bytes,
            types.MethodType: self._method,
        }
        if kind in ways:
            return ways[kind]
        if issubclass(kind, CONSTANT) or (numpy is not None and issubclass(kind, numpy.dtype)):
            return self._name
        if numpy is not None and kind is numpy.ndarray:
            return self._array
        if torch is not None and issubclass(kind, torch.Tensor):
            return self._tensor
        if hasattr(kind, "__del__") and kind.__module__ != "_io":  # what it frees at its end, a copy would free again
            self.can_copy = False
        is_bare = "__dict__" in dir(kind) and kind.__basicsize__ <= _Bare.__basicsize__
        if is_bare and not any(name in vars(each) for each in kind.__mro__[:-1] for name in HOOKS):
            return self._attributes
        return self._object

    def _plain(self, value: Any) -> None:
        try:
            text = repr(value)
        except ValueError:  # a whole number of too many digits
            text = hex(value)
        self._total.update(text.encode("utf-8", "surrogatepass"))

    def _items(self, values: Sequence[Any]) -> None:
        self._total.update(b"%d:" % len(values))
        if set(map(type, values)) <= PLAIN:  # a million numbers in one step
            try:
                self._total.update(repr(values).encode("utf-8", "surrogatepass"))
                return
            except ValueError:
                pass
        for item in values:
            self._value(item)

    def _list(self, values: list[Any]) -> None:
        self.held[id(values)] = values
        self._items(values)

    def _set(self, values: Any) -> None:
        if type(values) is set:
            self.held[id(values)] = values
        kinds = set(map(type, values))
        self._items(sorted(values) if len(kinds) == 1 and kinds <= {int, str, bytes} else [*values])

    def _dict(self, table: dict[Any, Any]) -> None:
        self.held[id(table)] = table
        self._items([*table])
        self._items([*table.values()])

    def _attributes(self, value: Any) -> None:
        self.held[id(value)] = value
        self._items([*vars(value)])
        self._items([*vars(value).values()])

    def _bytes(self, value: Any) -> None:
        self.held[id(value)] = value
        self._total.update(bytes(value))

    def _method(self, value: Any) -> None:
        self._plain(value.__func__.__qualname__)
        self._value(value.__self__)

    def _name(self, value: Any) -> None:
        self._plain(f"{type(value).__name__} {getattr(value, '__qualname__', None) or value}")

    def _array(self, value: Any) -> None:
        self.held[id(value)] = value
        self._plain(f"{value.dtype} {value.shape}")
        if value.dtype.hasobject:
            self._items(value.ravel().tolist())
        else:
            self._total.update(value.tobytes())

    def _tensor(self, value: Any) -> None:
        torch = sys.modules["torch"]
        self.held[id(value)] = value
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            self._is_whole = False
            return
        self._plain(f"{value.dtype} {[*value.shape]} {value.requires_grad}")
        whole = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._total.update(whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        if value.is_leaf:
            self._value(value.grad)

    def _object(self, value: Any) -> None:
        """Anything else, by what a copy would be built from."""
        try:
            parts = value.__reduce_ex__(4)
        except Exception:
            self.held[id(value)] = value
            self._is_whole = self.can_copy = False
            return
        if isinstance(parts, str):  # the name of something global
            self._plain(parts)
            return
        _, arguments, state, items, pairs = (*parts, None, None, None)[:5]
        is_hashable = type(value).__hash__ is not None
        if not is_hashable or any(each is not None for each in (state, items, pairs)):
            self.held[id(value)] = value
        self._value(arguments)
        self._value(state)
        self._items([*(items or ())])
        self._items([part for pair in pairs or () for part in pair])


def handed_again(first: Iterable[Any], again: Iterable[Any]) -> list[Any]:
    """What of the first arguments has a state of its own and is given again: one object, and not one like it. Nothing
    is named that is part of another one that is."""
    later = Seen(again).held
    shared = []
    for argument in first:
        held = Seen(argument).held
        shared += [argument] if id(argument) in later else [part for place, part in held.items() if place in later]
    return shared


def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """A copy of it, in which nothing is shared with it that a call may change. memo: is filled with what each part of
    it was copied to, by id. Raises what copying raises."""
    return copy.deepcopy(value, {} if memo is None else memo)


def can_be_copied(value: Any) -> bool:
    """Whether a copy is harmless, and like the value in all that can be seen."""
    seen = Seen(value)
    if not (seen.digest and seen.can_copy):
        return False
    try:
        return Seen(copied(value)).digest == seen.digest
    except Exception:
        return False


def kinds_of(values: Iterable[Any]) -> str:
    """The names of their types: "list", "Cursor and list"."""
    return " and ".join(sorted({type(each).__name__ for each in values}))
