"""The messages of the benchmarks: small pydantic models, about 100 bytes of JSON each."""

from __future__ import annotations

from pydantic import BaseModel


class Order(BaseModel):
    """A call: the agent answers with a `Receipt`."""

    number: int
    customer: str = "customer-4711"
    article: str = "left-handed-screwdriver"
    price: float = 12.5


class Receipt(BaseModel):
    """The answer to an `Order`."""

    number: int
    accepted: bool = True


class Tick(BaseModel):
    """An event: published, never answered."""

    number: int
    symbol: str = "ACME-INDUSTRIES"
    market: str = "XETRA-FRANKFURT"
    price: float = 101.25
