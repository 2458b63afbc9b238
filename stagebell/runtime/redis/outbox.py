"""What a turn publishes, and what else it does with its commit: it waits here and leaves with that."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

from autogen_core import AgentId, CancellationToken, TopicId

from stagebell.messages.ids import output_id, turn_id
from stagebell.messages.registry import Encoded
from stagebell.runtime.engine.hops import fresh_context, hops_left
from stagebell.runtime.engine.timers import TimerId
from stagebell.runtime.redis.effects import Effect
from stagebell.runtime.redis.keys import LeasedKeys
from stagebell.runtime.redis.requests import NO_REPLY, Delivery
from stagebell.runtime.redis.telling_back import address_of
from stagebell.runtime.redis.timed import Timed, cancelling, place_of

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services


class Published(NamedTuple):
    """A publish, or a message for one agent, that waits: once encoded, once as it is for agents of this process."""

    id: str
    to: TopicId | AgentId
    envelope: bytes
    message: Any
    sender: AgentId | None
    deadline: int | None
    token: CancellationToken | None
    hops: int | None  # that the code which published it had left
    expects: type | None = None


class Outbox:
    """The publishes and other effects of one turn: among them `answered`, calls put off before, and `timed`, timers."""

    __slots__ = ("_effects", "_services", "_turn_id", "answered", "published", "timed")

    def __init__(self, services: Services, turn_id: str) -> None:
        self._services = services
        self._turn_id = turn_id
        self._effects: list[Effect | Timed] = []
        self.published: list[Published] = []
        self.timed: set[str] = set()
        self.answered: set[str] = set()

    def add(
        self,
        message: Any,
        encoded: Encoded,
        topic: TopicId,
        sender: AgentId | None,
        deadline: int | None,
        token: CancellationToken | None,
    ) -> None:
        """Publish with the commit; what is sent is the message as it is now."""
        id = output_id(self._turn_id, len(self.published))
        envelope = self._services.wire.publication(encoded, id=id, topic=topic, sender=sender, deadline=deadline)
        self.published.append(Published(id, topic, envelope, message, sender, deadline, token, hops_left()))

    def tell(
        self,
        message: Any,
        encoded: Encoded,
        to: AgentId,
        sender: AgentId | None,
        expects: type | None = None,
        keys: LeasedKeys | None = None,
    ) -> None:
        """Send a message that nobody waits for with the commit; it inherits nothing from the turn.

        With `expects`, the sender, whose partition has these `keys`, is told when it is not answered with that.
        """
        id, reply = output_id(self._turn_id, len(self.published)), NO_REPLY
        if expects is not None and sender is not None and keys is not None:
            reply = address_of(sender, keys, id, self._services.wire.registry.name_of_class(expects))
        envelope = self._services.wire.told(encoded, id=id, to=to, sender=sender, reply=reply)
        self.published.append(Published(id, to, envelope, message, sender, None, None, None, expects))

    def put(self, *effects: Effect) -> None:
        """Let this happen with the commit."""
        self._effects += effects

    def set_timer(self, timed: Timed) -> None:
        """Set a timer with the commit."""
        self._effects.append(timed)
        self.timed.add(timed.id.key)

    def cancel_timer(self, keys: LeasedKeys, id: TimerId) -> bool:
        """Cancel a timer with the commit; True when it was this turn that has set it."""
        self._effects.append(cancelling(keys, id))
        known = id.key in self.timed
        self.timed.discard(id.key)
        return known

    def outputs(self) -> list[Delivery | Effect] | None:
        """The commit's effects, and messages for agents that live in the server, by what is known now.

        None: `find_places` first.
        """
        found: list[Delivery | Effect] = []
        for effect in self._effects:
            if isinstance(effect, Timed):
                keys = place_of(effect.id.to, self._services.directory)
                if keys is None:
                    return None
                found += effect.effects(keys)
            else:
                found.append(effect)
        for published in self.published:
            for agent in self._recipients(published, bound=False):
                place = self._services.directory.place(agent)
                if place is None:
                    return None
                found.append(_delivery(place, published, agent))
        return found

    async def find_places(self) -> None:
        """Find the places of recipients whose types are not known yet."""
        for published in self.published:
            for agent in self._recipients(published, bound=False):
                await self._services.directory.find_place(agent)
        for effect in self._effects:
            if isinstance(effect, Timed) and isinstance(effect.id.to, AgentId):
                await self._services.directory.find_place(effect.id.to)

    def deliver_here(self) -> None:
        """The turn is committed: hand the messages to the agents that are bound to this process."""
        for published in self.published:
            if published.token is not None:
                self._watch(published, published.token)
            agents = self._recipients(published, bound=True)
            if agents:
                self._hand_over(published, agents)

    def _hand_over(self, published: Published, agents: list[AgentId]) -> None:
        message, to, sender, id = published.message, published.to, published.sender, published.id
        if isinstance(to, AgentId):
            self._services.tell_here(message, to, sender, id, published.expects)
            return
        context = Context() if published.hops is None else fresh_context(published.hops)
        context.run(self._services.publish_here, message, to, agents, sender, id, published.deadline)

    def _watch(self, published: Published, token: CancellationToken) -> None:
        """From now on the messages are ended when the token is cancelled."""
        places = ((agent, self._services.directory.place(agent)) for agent in self._recipients(published, bound=False))
        found = (_delivery(place, published, agent) for agent, place in places if place is not None)
        self._services.transport.published.committed(token, found)

    def _recipients(self, published: Published, *, bound: bool) -> list[AgentId]:
        to, directory = published.to, self._services.directory
        agents = [to] if isinstance(to, AgentId) else directory.recipients(to, published.sender)
        return [agent for agent in agents if (agent.type in self._services.bound_here) is bound]


def _delivery(place: LeasedKeys, published: Published, agent: AgentId) -> Delivery:
    recipient = str(agent)
    return Delivery(place, turn_id(published.id, recipient), recipient, published.envelope)
