"""Objects with attributes and methods."""

from __future__ import annotations

import random

LENGTH = 160

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


def made(draw: random.Random, length: int) -> list[int]:
    """So many amounts."""
    return draw.choices(range(100), k=length)


def once(amounts: list[int]) -> int:
    """The state of an account after them."""
    account = Account(len(amounts))
    for amount in amounts:
        account.book(amount)
    return account.state()
