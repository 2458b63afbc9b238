"""What a schema allows, found without chance."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from stagebell.testing.schema_data import example_of

pytestmark = pytest.mark.unit


class Colour(StrEnum):
    """One of two."""

    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    """Nested."""

    city: str = Field(min_length=3)
    zip: str = Field(max_length=5)


class Order(BaseModel):
    """A bit of everything."""

    id: UUID
    day: date
    at: datetime
    count: int = Field(ge=1, le=10)
    price: float = Field(gt=0, lt=0.25)
    below: int = Field(lt=0)
    even: int = Field(gt=3, multiple_of=2)
    colour: Colour
    kind: Literal["big", "small"]
    place: Place
    tags: list[Annotated[str, Field(min_length=2)]] = Field(min_length=2)
    pair: tuple[int, str]
    maybe: int | None
    either: Place | Colour
    note: str = "as it comes"
    extra: dict[str, int]
    flag: bool
    nothing: None


def test_the_example_of_a_model_is_one() -> None:
    """Bounds, formats, references, unions, arrays and tuples."""
    assert Order.model_validate(example_of(Order.model_json_schema()))


@given(st.integers(-50, 50), st.integers(0, 60), st.booleans(), st.booleans())
def test_numbers_lie_within_their_bounds(low: int, width: int, open_low: bool, open_high: bool) -> None:
    """Open or closed, on either side of zero."""
    if width < 2:
        open_low = open_high = False
    field: Any = Field(**{"gt" if open_low else "ge": low, "lt" if open_high else "le": low + width})
    for kind in (int, float):
        adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kind, field])
        adapter.validate_python(example_of(adapter.json_schema()))


def test_a_schema_without_end_is_refused() -> None:
    """As is one that refers to nothing."""
    with pytest.raises(ValueError, match="contains itself"):
        example_of({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})
    with pytest.raises(ValueError, match="does not define"):
        example_of({"$ref": "#/$defs/B"})
