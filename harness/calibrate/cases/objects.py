"""Objects with attributes and methods."""

from __future__ import annotations

import random

REPEATS = 20

RATE = 3


class Account:
    """Holds a balance."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.balance = 0
        self.bookings = 0
        self.limit = 500

    def book(self, amount: int) -> None:
        """Put an amount in, up to the limit."""
        self.balance += amount
        self.bookings += 1
        if self.balance > self.limit:
            self.settle()

    def settle(self) -> None:
        """Take out what is above the limit."""
        self.balance -= self.limit // RATE

    def state(self) -> int:
        """In one number."""
        return self.balance * self.bookings + self.number


def fixed(seed: int) -> list[int]:
    """A hundred and sixty amounts."""
    return random.Random(seed).choices(range(100), k=160)


def mixed(seed: int) -> list[int]:
    """Eighty to 240 amounts."""
    draw = random.Random(seed)
    return draw.choices(range(100), k=draw.randint(80, 240))


def booked(amounts: list[int]) -> int:
    """The state of an account after them."""
    account = Account(len(amounts))
    for amount in amounts:
        account.book(amount)
    return account.state()


def work(amounts: list[int]) -> int:
    """That."""
    for _ in range(REPEATS):
        answer = booked(amounts)
    return answer
