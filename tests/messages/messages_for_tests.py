"""Message types that the tests of this folder share."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


class OrderPlaced(BaseModel):
    """A pydantic message."""

    order: int
    customer: str
    items: list[str] = []


@dataclass
class Greeting:
    """A dataclass message, its annotations kept as text."""

    text: str
    times: int = 1


class CardDeclined(Exception):
    """An exception of a user, with attributes and an __init__ of another signature."""

    def __init__(self, order: int, *, reason: str) -> None:
        super().__init__(f"order {order}: {reason}")
        self.order = order
        self.reason = reason


class Odd(Exception):
    """An exception whose text depends on something that cannot travel."""

    def __init__(self, thing: object) -> None:
        super().__init__()
        self.thing = thing

    def __str__(self) -> str:
        return f"odd {self.thing!r}"
