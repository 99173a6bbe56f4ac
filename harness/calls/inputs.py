"""What a call does to its input: digests of it before and after, and copies of what is handed out again.

A digest is of what an object gives away to be copied. So it sees lists, arrays, tables, objects of own classes, and how
far an iterator over a list was read. A generator or an open file gives nothing away: then a digest says that something
cannot be seen.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import marshal
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, Optional

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})

CONSTANT = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType, type)
"""What is taken by its name: its state, if it has any, is no input."""

HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__slots__", "__getnewargs__", "__getnewargs_ex__")
"""With none of these a class of Python code leaves it to Python how its objects are copied: by their attributes."""


class _Bare:
    """A class of Python code, whose objects hold nothing but attributes: they are as small as these."""


class Seen:
    """What can be seen of a value. digest: the same for the same content; empty where something of it cannot be seen.
    held: by id, what has a state of its own, which a call may change. can_copy: whether a copy of it is harmless, as
    far as is known."""

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


# What a function is called with: a user's payload function makes the arguments, another time for each call.


Arguments = tuple[Any, ...]

SEEDS = 1 << 32


def _of_numpy(state: Any) -> tuple[bytes, int]:
    return state[1].tobytes(), state[2]


GENERATORS: Mapping[str, tuple[Callable[[Any, int], Any], Callable[[Any], Any]]] = {
    "random": (lambda module, seed: module.seed(seed), lambda module: module.getstate()),
    "numpy": (lambda module, seed: module.random.seed(seed), lambda module: _of_numpy(module.random.get_state())),
    "torch": (lambda module, seed: module.manual_seed(seed), lambda module: module.get_rng_state().numpy().tobytes()),
}
"""Modules with random numbers of their own: how they are seeded, and their state."""


class Payload:
    """Arguments by number, the same again for the same number and `draw`.

    The function may take a seed, a whole number. Python's, numpy's and torch's random numbers are seeded before it is
    called, so that one without a parameter gives other values each time, too. A tuple is spread: one argument each.

    generators: those of GENERATORS that are seeded: all of them, until `used` was asked which ones it draws from.
    copies: whether a copy is given of what the function hands out, because calls change it. size: what the function is
    given beside the seed; 0: nothing."""

    def __init__(self, function: Callable[..., Any], draw: str, size: int = 0) -> None:
        self._function = function
        self._sizes = (size,) if size else ()
        self._draw = draw
        self._takes_seed = _takes_one(function)
        self.generators = tuple(GENERATORS)
        self.copies = False

    def used(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """The generators that making these inputs draws from. Seeding one takes up to 50 µs, more than many an input. A
        generator whose module is imported by the first call counts as used: its state before is not known."""
        used = []
        for number in numbers:
            _seeded(self.seed(number), self.generators)
            before = _states(self.generators)
            self._made(self.seed(number))
            after = _states(self.generators)
            used += [name for name in after if before.get(name) != after[name]]
        return tuple(name for name in self.generators if name in used)

    @staticmethod
    def drawn() -> dict[str, Any]:
        """Where the random numbers of Python, numpy and torch stand: the same as before where nothing drew any."""
        return _states(tuple(GENERATORS))

    def work(self) -> dict[str, float]:
        """What a call must do at least, as far as the function has attributes that say so: numbers, or functions of
        the size. Raises ValueError."""
        amounts = {what: getattr(self._function, what, 0) for what in ("flops", "bytes", "items")}
        amounts = {what: amount(*self._sizes) if callable(amount) else amount for what, amount in amounts.items()}
        for what, amount in amounts.items():
            if not isinstance(amount, Real) or not 0 <= float(amount) < float("inf"):
                raise ValueError(f"{what} = {amount!r}: expected a number, 0 or more")
        return {what: float(amount) for what, amount in amounts.items()}

    def around(self) -> tuple[Optional[Callable[..., Any]], Optional[Callable[..., Any]]]:
        """What is called before and after each call, with its arguments, as the function has it in attributes. Raises
        TypeError."""
        before, after = (getattr(self._function, name, None) for name in ("setup", "teardown"))
        for name, given in (("setup", before), ("teardown", after)):
            if given is not None and not callable(given):
                raise TypeError(f"{name} = {given!r}: expected a function, which is called with a call's arguments")
        return before, after

    def seed(self, number: int) -> int:
        """What the function is given, and where random numbers begin. Numbers below 0 do not depend on `draw`."""
        text = f"{self._draw if number >= 0 else ''} {number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def arguments(self, number: int) -> Arguments:
        """What a function is called with."""
        return self.seeded(self.seed(number))

    def seeded(self, seed: int) -> Arguments:
        """The same by the seed itself: the same in every process, whatever its `draw`."""
        return self._made(_seeded(seed, self.generators))

    def batch(self, first: int, count: int) -> list[Arguments]:
        """Arguments for so many calls: those of the last number can be made again, the others are like none before.
        Seeding takes longer than many a call, so that it is done for the first and the last alone."""
        base = _seeded(self.seed(first), self.generators)
        others = [self._made((base + index) % SEEDS) for index in range(1, count)]
        return [*others, self.arguments(first + count - 1)]

    def _made(self, seed: int) -> Arguments:
        given = self._function(*(seed,) * self._takes_seed, *self._sizes)
        given = copied(given) if self.copies else given
        return given if type(given) is tuple else (given,)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """What is seeded in this block is as it was before after it: tests may draw from it."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = random.getstate(), numpy and numpy.random.get_state(), torch and torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
        if torch:
            torch.set_rng_state(states[2])


def _seeded(seed: int, generators: Sequence[str]) -> int:
    """The same seed, after all random numbers of these generators begin with it."""
    for name in generators:
        if module := sys.modules.get(name):
            GENERATORS[name][0](module, seed)
    return seed


def _states(generators: Sequence[str]) -> dict[str, Any]:
    """Where each of these generators stands that is imported."""
    return {name: GENERATORS[name][1](sys.modules[name]) for name in generators if name in sys.modules}


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether it needs one argument, or has one that is called seed. Others that need none are left as they are."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some built-in functions do not tell
        return False
    first = next((p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)), None)
    return first is not None and (first.default is first.empty or first.name == "seed")


# Inputs that a process makes once and gives to many calls: making one often takes longer than the call.
# What is given again may remember what it was used for (a text its hash, a function its answer), and a call may
# change it. So calls that change their inputs get copies, and others where copies cost little. Gates try what each
# side gains where an input is given again: where one gains more than another, each call has a new one.


NEW, COPIED, AGAIN = "new", "copied", "again"
"""What a call is given: an input that is made for it, a copy of one that was made before, or one again."""

CHEAP_SHARE = 0.1  # of a call: where making an input takes less, each call has a new one

COPY_SHARE = 0.25
"""Of a call: where copying an input takes less, each call has a copy, so that no text has its hash yet."""

LEAST_INPUTS, MOST_INPUTS = 8, 1 << 12

TIME_SHARE = 0.25  # of a side's time in a process, for making its inputs

NUMBERS = (int, float, complex, bool, type(None))


class GainAgain(NamedTuple):
    """How much less time second calls with the same inputs take than first ones."""

    first_ns: float
    """What a first call takes."""
    gain_ns: float
    error_ns: float
    """Of the gain, a standard error."""
    freedom: int
    """Degrees of freedom of the error."""


@dataclass(frozen=True)
class InputCosts:
    """What a gate found out of a side's inputs. copy_ns: what a copy takes; 0 where it is not known how to make one.
    changes: whether calls change them. is_plain: whether they are numbers and arrays of them, which remember
    nothing. again: what a side gains where it is given an input again; None where nobody knows."""

    make_ns: float
    copy_ns: float
    changes: bool
    is_plain: bool
    again: GainAgain | None = None

    def is_copied(self, call_ns: float) -> bool:
        """Whether calls need copies, or cost little more with them."""
        return self.changes or (not self.is_plain and 0 < self.copy_ns < min(COPY_SHARE * call_ns, self.make_ns))

    @classmethod
    def of(cls, learnt: Mapping[str, Any]) -> InputCosts:
        """By what a gate learnt."""
        changes = learnt["changes_inputs"] or learnt["spoils_inputs"]
        again = None if learnt.get("again") is None else GainAgain(*learnt["again"])
        return cls(learnt["make_ns"], learnt["copy_ns"], changes, learnt["has_plain_inputs"], again)


def pool_size(make_ns: float, side_ns: float) -> int:
    """How many inputs a process makes of each side, which it samples for so long."""
    return min(max(round(TIME_SHARE * side_ns / max(make_ns, 1)), LEAST_INPUTS), MOST_INPUTS)


def copies_are_alike(arguments: Arguments) -> bool:
    """Whether a copy is harmless, and what `copier` gives is like these arguments in all that can be seen."""
    seen = Seen(arguments)
    return bool(seen.digest) and seen.can_copy and Seen(copier(arguments)()).digest == seen.digest


def copier(arguments: Arguments) -> Callable[[], Arguments]:
    """What makes copies of arguments, quickly where they are made of numbers, texts, lists, dicts and arrays."""
    makers = [_copier(each) for each in arguments]
    if len(makers) == 1:
        [make] = makers
        return lambda: (make(),)
    return lambda: tuple([make() for make in makers])


def is_plain(arguments: Arguments) -> bool:
    """Whether they are numbers and arrays of numbers."""
    return all(type(each) in NUMBERS or _is_array(each) for each in arguments)


def _copier(value: Any) -> Callable[[], Any]:
    if type(value) in NUMBERS:
        return lambda: value
    if _is_array(value):
        copy: Callable[[], Any] = value.copy
        return copy
    try:
        written = marshal.dumps(value)
    except ValueError:  # an object of a class
        return lambda: copied(value)
    return lambda: marshal.loads(written)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject


class Pool:
    """The inputs of one side in one process."""

    def __init__(self, payload: Payload, size: int, *, copies: bool) -> None:
        """copies: whether calls are given copies."""
        self._payload, self._size, self.copies = payload, size, copies
        self._made: list[Callable[[], Arguments]] = []
        self._numbered: list[tuple[int, int]] = []  # place and number of those that can be made again

    def __len__(self) -> int:
        return len(self._made)

    @property
    def is_full(self) -> bool:
        """Whether no more are made."""
        return len(self._made) >= self._size

    def given(self, number: int, count: int) -> tuple[list[Arguments], int]:
        """What so many calls are given, and the number by which the last of it can be made again. number: of the first
        of so many inputs that nobody has been given; by it the choice is drawn, for all sides the same."""
        drawn = random.Random(number)
        if more := min(count, self._size - len(self._made)):
            self._numbered.append((len(self._made) + more - 1, number + more - 1))
            made = self._payload.batch(number, more)
            self._made += [copier(each) for each in made] if self.copies else [partial(tuple, each) for each in made]
            place, last = self._numbered[-1]
        else:
            place, last = drawn.choice(self._numbered)
        new = range(len(self._made) - more, len(self._made) - 1) if more else ()
        again = drawn.choices(range(len(self._made)), k=count - 1 - len(new))
        return [self._made[each]() for each in (*new, *again, place)], last
