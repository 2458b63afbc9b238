"""Which agents a topic reaches."""

from __future__ import annotations

from collections.abc import Iterator

from autogen_core import AgentId, Subscription, TopicId, TypePrefixSubscription, TypeSubscription

from stagebell.errors import SubscriptionError
from stagebell.runtime.engine.addressed import require_subscription


class Subscriptions:
    """The subscriptions of one runtime, with the recipients of each topic kept until something changes."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []
        self._recipients: dict[tuple[str, str], list[AgentId]] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._subscriptions)

    def add(self, subscription: Subscription) -> None:
        """Raises SubscriptionError when an equal one exists, or no agent type can have its name; WrongType else."""
        require_subscription(subscription)
        _check_agent_type(subscription)
        if any(existing == subscription for existing in self._subscriptions):
            raise SubscriptionError("Subscription already exists: the same topic already reaches the same agent type")
        self._subscriptions.append(subscription)
        self._recipients.clear()

    def remove(self, id: str) -> Subscription:
        """Raises SubscriptionError when there is none of this id."""
        for subscription in self._subscriptions:
            if subscription.id == id:
                self._subscriptions.remove(subscription)
                self._recipients.clear()
                return subscription
        raise SubscriptionError(f"Subscription does not exist: {id}")

    def recipients(self, topic: TopicId) -> list[AgentId]:
        """The agents a topic reaches, each once however many subscriptions match it."""
        key = (topic.type, topic.source)
        found = self._recipients.get(key)
        if found is None:
            matches = (s.map_to_agent(topic) for s in self._subscriptions if s.is_match(topic))
            found = list(dict.fromkeys(matches))
            if len(self._recipients) > _MOST_TOPICS:
                self._recipients.clear()
            self._recipients[key] = found
        return found


def _check_agent_type(subscription: Subscription) -> None:
    """Said here, since each publish that matched would fail otherwise."""
    if isinstance(subscription, TypeSubscription | TypePrefixSubscription):
        try:
            AgentId(subscription.agent_type, "x")
        except ValueError as error:
            raise SubscriptionError(f"no agent type can be called {subscription.agent_type!r}: {error}") from None


_MOST_TOPICS = 50_000
