"""What is told of a message that nobody will handle: to the agent whose message it was, or to the one that sent it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, JsonValue


class SetAside(BaseModel):
    """A message was set aside: it could not be handled, and will not be tried again.

    An agent whose class has a handler for this is told of each message to it that went to the dead letters. Who told
    somebody something with `expects` is told instead, also when it was answered with something else.

    Attributes:
        agent: whose message it was, as "type/key".
        type: its wire name.
        data: the message as JSON data; None for one that is none.
        error: the class of what happened, such as "DeadLettered" or "CantHandle".
        reason: what happened, in one line.
    """

    model_config = ConfigDict(frozen=True)

    agent: str
    type: str
    data: JsonValue = None
    error: str
    reason: str
