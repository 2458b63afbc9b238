"""Where the agent lives that a turn calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_core import AgentId

from stagebell.runtime.engine.deadlines import ended_by
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import Turn

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services


async def find_callee(services: Services, caller: Turn, k: str, recipient: AgentId, deadline: int | None) -> LeasedKeys:
    """The keys of the inbox that takes call k of a turn.

    A turn that runs again takes the reply that an earlier attempt had, also from an agent whose type has ended with its
    process since. Then any inbox will do: nothing is sent.

    Raises:
        DeadlineExceeded: the deadline was over before the type was known.
        Undeliverable: nobody has hosted the type for `undeliverable_after`.
    """
    place = services.directory.place(recipient)
    if place is not None:
        return place
    if await services.link.submit(lambda scripts: scripts.is_answered(caller, k)):
        return services.directory.partition(recipient.type, 0)
    patience = services.settings.undeliverable_after
    if deadline is None:
        return await services.directory.wait_for_place(recipient, patience)
    async with ended_by(deadline, services.clock, recipient):
        return await services.directory.wait_for_place(recipient, patience)
