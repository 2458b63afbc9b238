"""The timers of `LocalRuntime`: in memory, for as long as the runtime is not closed."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from autogen_core import AgentId, TopicId

from stagebell.errors import OutsideTurn, RuntimeNotRunning, Undeliverable
from stagebell.runtime.engine.addressed import require_agent
from stagebell.runtime.engine.host import Host
from stagebell.runtime.engine.subscriptions import Subscriptions
from stagebell.runtime.engine.timers import NOW, MemoryTimers, Plan, Scheduled, Timer, TimerId, as_time
from stagebell.runtime.engine.watched import context_of

logger = logging.getLogger("stagebell")


class LocalTimers(Host):
    """Base of `LocalRuntime`: messages that come later."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._subscriptions = Subscriptions()
        self._timers = MemoryTimers(self._clock, self._deliver)

    async def schedule(
        self,
        message: Any,
        to: AgentId | TopicId,
        *,
        delay: float | None = None,
        every: float | None = None,
        at: datetime | None = None,
        name: str | None = None,
    ) -> Timer:
        """Let a message come later, to an agent or to all that subscribe to a topic.

        A time that comes while the runtime is stopped is made up for at the next start, once; `close` forgets them all.
        Of times that have passed when one is handled late, a timer with `every` leaves out all but one. With `delay=0`
        and nothing else, what is for an agent takes its place in that agent's mailbox before this returns.

        Args:
            message: what comes.
            to: an agent (its handler answers nobody) or a topic.
            delay: seconds from now.
            every: seconds from one time to the next; without `delay` or `at` the first is after that time.
            at: the first time, with its time zone.
            name: another timer of this name for the same recipient is replaced.

        Returns:
            The timer.

        Raises:
            ValueError: the times contradict each other, or are none.
            RuntimeNotRunning: the runtime was stopped.
            Undeliverable: with `delay=0`: the agent's type is not registered.
            MessageDroppedException: an intervention dropped the message.
        """
        plan, id = Plan.of(delay, every, at), TimerId.make(to, name)
        if plan == NOW and name is None and isinstance(to, AgentId):
            await self.tell(message, to)
            return Timer(str(id), as_time(self._clock.now_ms()), self)
        sender = self._sender_to(to)
        if self._watched:
            topic = to if isinstance(to, TopicId) else None
            message = await self._watcher.schedule(message, context_of(sender, topic, None, None), to)
        due = self._timers.set(Scheduled(id, plan, message, sender))
        return Timer(str(id), as_time(due), self)

    async def tell(self, message: Any, to: AgentId, *, expects: type | None = None) -> None:
        """Send a message to one agent, without waiting for it; its handler answers nobody.

        It takes its place in the agent's mailbox before this returns, and inherits nothing from the turn that sends it.

        Args:
            message: what is sent.
            to: the agent.
            expects: the class of what its handler returns. When it returns something else, or fails, or there is none,
                the agent whose turn sends this is told by a `SetAside`.

        Raises:
            OutsideTurn: something is expected, and no message is being handled.
            RuntimeNotRunning: the runtime was stopped.
            Undeliverable: the agent's type is not registered.
            MessageDroppedException: an intervention dropped the message.
        """
        if type(to) is not AgentId:
            require_agent(to)
        sender = self._sender_to(to)
        if expects is not None and sender is None:
            raise OutsideTurn("tell")
        if self._watched:
            message = await self._watcher.schedule(message, context_of(sender, None, None, None), to)
        self._telling.tell(message, to, sender, None, expects)

    async def cancel_timer(self, id: str) -> bool:
        """Let a timer come no more.

        Args:
            id: that of the timer.

        Returns:
            True when it was still to come.

        Raises:
            ValueError: this is no id of a timer.
        """
        return self._timers.cancel(TimerId.parse(id))

    def _sender_to(self, to: AgentId | TopicId) -> AgentId | None:
        if not self._dispatcher.accepting:
            raise RuntimeNotRunning(f"a message for {to} was refused: the runtime is stopped, call start() first")
        caller = self._caller()
        return None if caller is None else caller.activation.id

    def _deliver(self, scheduled: Scheduled, message_id: str) -> None:
        to, sender = scheduled.id.to, scheduled.sender
        if isinstance(to, TopicId):
            recipients = self._recipients(to, sender)
            if recipients:
                self._publish_here(scheduled.message, to, recipients, sender, None, message_id)
            return
        try:
            self._telling.tell(scheduled.message, to, sender, message_id)
        except Undeliverable as error:
            logger.error("a message was due for an agent that cannot be made: %s", error)

    def _recipients(self, topic: TopicId, sender: AgentId | None) -> list[AgentId]:
        recipients = self._subscriptions.recipients(topic)
        if sender is None:
            return recipients
        return [agent for agent in recipients if agent != sender]
