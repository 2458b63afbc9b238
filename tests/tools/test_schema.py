"""The schema is the signature, its texts are the docstring's, and nothing else is in it."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from stagebell.tools.context import ToolContext
from stagebell.tools.docstrings import parse_docstring
from stagebell.tools.tool import tool

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parents[1] / "golden" / "tool_schema.json"


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


class Address(BaseModel):
    street: str = Field(min_length=1)
    title: str = Field(default="", description="how they are spoken to")


class Box(BaseModel):
    inside: list[Box] = []


async def ship(
    context: ToolContext[Any],
    order: Annotated[str, Field(pattern="^A[0-9]+$")],
    to: Address,
    weight: Annotated[float, Field(gt=0, le=30)],
    speed: Speed = Speed.SLOW,
    carrier: Literal["post", "van"] | None = None,
    notes: Annotated[list[str], "said to the driver"] = [],  # noqa: B006
) -> str:
    """Send an order on its way.

    It leaves the same day.

    Args:
        order: the number on the
            receipt
        to (Address): where it goes: the door
        weight: in kilograms
        notes: not this one, the annotation says it

    Returns:
        The number of the parcel.
    """
    return order


def test_the_schema_of_a_function_is_the_one_in_the_golden_file() -> None:
    assert tool(ship).schema == json.loads(GOLDEN.read_text(encoding="utf-8"))


def titles(schema: Any, is_schema: bool = True) -> list[Any]:
    if isinstance(schema, list):
        return [title for each in schema for title in titles(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["title"]] if is_schema and "title" in schema else []
    return own + [title for key, each in schema.items() for title in titles(each, key != "properties")]


def test_no_titles_are_made_up_and_those_given_stay() -> None:
    async def said(name: Annotated[str, Field(title="Full name")], box: Box) -> None: ...

    assert titles(tool(ship).schema["parameters"]) == []
    assert titles(tool(said).schema["parameters"]) == ["Full name"]


def test_a_type_that_contains_itself_keeps_its_reference() -> None:
    async def pack(box: Box) -> None: ...

    parameters: Any = tool(pack).schema["parameters"]
    assert parameters["properties"]["box"] == {"$ref": "#/$defs/Box"}
    assert parameters["$defs"]["Box"]["properties"]["inside"]["items"] == {"$ref": "#/$defs/Box"}


def test_a_renamed_parameter_is_renamed_in_the_schema() -> None:
    async def before(amount: int) -> None: ...
    async def after(cents: int) -> None: ...

    assert [list(tool(each).parameters["properties"]) for each in (before, after)] == [["amount"], ["cents"]]


@pytest.mark.parametrize(
    "text",
    [
        """What it does,
        in two lines.

        Args:
            one: the first,
                still the first
            two (int, optional): the second: with a colon
        Raises:
            ValueError: never
        """,
        """What it does,
        in two lines.

        Parameters
        ----------
        one : str
            the first,
            still the first
        two : int, optional
            the second: with a colon

        Returns
        -------
        int
        """,
        """What it does,
        in two lines.

        :param one: the first,
            still the first
        :param int two: the second: with a colon
        :raises ValueError: never
        :return: nothing
        """,
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_three_ways_to_write_a_docstring(text: str) -> None:
    assert parse_docstring(text) == (
        "What it does, in two lines.",
        {"one": "the first, still the first", "two": "the second: with a colon"},
    )


@pytest.mark.parametrize("text", [None, "", "\n", "Args:", ":param", "Args:\n  x", "Parameters\n----"])
def test_a_docstring_that_says_little_is_no_error(text: str | None) -> None:
    assert parse_docstring(text).parameters in ({}, {"x": ""})


def test_paragraphs_are_kept() -> None:
    assert parse_docstring("One\ntwo.\n\nThree.").description == "One two.\n\nThree."
