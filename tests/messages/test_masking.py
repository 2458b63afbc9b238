"""What people are shown holds no secret; what is none stays readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagebell.messages.masking import mask, mask_text

pytestmark = pytest.mark.unit

SECRET = "hunter2hunter2"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"redis://user:{SECRET}@db:6379/0", "redis://user:***@db:6379/0"),
        (f"redis://:{SECRET}@db", "redis://:***@db"),
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"basic {SECRET}= and more", "basic *** and more"),
        (f"got {TOKEN}.", "got ***."),
        ("key sk-abcdefghijklmnop1234 used", "key *** used"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        (f"password={SECRET}&user=ada", "password=***&user=ada"),
        (f'{{"api_key": "{SECRET}", "user": "ada"}}', '{"api_key": "***", "user": "ada"}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest", "***\nrest"),
    ],
)
def test_a_secret_in_a_text_is_hidden(text: str, shown: str) -> None:
    """And what is around it stays."""
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/a:b@c",
        "the token bucket is empty",
        "12 tokens",
        '{"prompt_tokens": 12, "max_tokens": 5, "tokens": 3}',
        '{"order": 7, "note": "bearer of bad news"}',
        "a basic example",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Counts of tokens among it."""
    assert mask_text(text) == text


def test_a_field_whose_name_says_so_is_hidden_however_deep() -> None:
    """Also in JSON that is a text inside of JSON."""
    inner = json.dumps({"client_secret": SECRET})
    shown = mask({"a": [{"Password": SECRET, "authorization": ["x", SECRET], "n": 1}], "arguments": inner})
    assert SECRET not in json.dumps(shown)
    assert shown == {
        "a": [{"Password": "***", "authorization": "***", "n": 1}],
        "arguments": '{"client_secret": "***"}',
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
)


@given(json_values)
def test_masking_twice_changes_nothing_more(value: object) -> None:
    """Whatever it is, and no error."""
    once = mask(value)
    assert mask(once) == once
