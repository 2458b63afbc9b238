"""The handle of a deferred reply, as text."""

from __future__ import annotations

import pytest
from autogen_core import AgentId
from pydantic import BaseModel

from stagebell import DeferredReply

pytestmark = pytest.mark.unit


class Kept(BaseModel):
    """A state or message that holds one."""

    handle: DeferredReply


@pytest.mark.parametrize("key", ["default", "with: a colon", "odd/ключ {}"])
def test_a_handle_names_its_agent(key: str) -> None:
    handle = DeferredReply(f"0123abcd:desk/{key}")
    assert (handle.id, handle.agent) == ("0123abcd", AgentId("desk", key))


@pytest.mark.parametrize("text", ["", "x", "x:y", ":a/b", "0 0:a/b", "0:/b"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        DeferredReply(text)
    with pytest.raises(ValueError):
        Kept.model_validate({"handle": text})
