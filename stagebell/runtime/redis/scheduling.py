"""Messages that come later, from a runtime on a server: with the commit of a turn, or at once from outside of turns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from autogen_core import AgentId, TopicId

from stagebell.errors import OutsideTurn
from stagebell.messages.ids import new_message_id
from stagebell.messages.set_aside import SetAside
from stagebell.runtime.engine.addressed import require_agent
from stagebell.runtime.engine.immediate import is_immediate
from stagebell.runtime.engine.timers import NOW, Plan, Timer, TimerId, as_time
from stagebell.runtime.engine.watched import context_of
from stagebell.runtime.redis.node import Node
from stagebell.runtime.redis.sending import Sending
from stagebell.runtime.redis.timed import Timed


class Scheduling(Sending):
    """Base of `RedisRuntime`: timers, kept in the server until they are due."""

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
        """Let a message come later, to an agent or to all that subscribe to a topic by then.

        It survives every process, and comes once for each time that it is due, by the server's clock. Times that passed
        while no worker was there come as one. From inside a turn it is set with the turn's commit, and `delay` counts
        from there. For an agent that is bound to its process it ends with that process. With `delay=0` and nothing
        else, what is for an agent waits for no timer: it leaves with the commit, in line with what the turn publishes,
        and from outside of turns it is in the agent's inbox when this returns.

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
            UnregisteredType, MessageTooLarge: the message cannot travel.
            Undeliverable: nobody has hosted the agent's type for `undeliverable_after`.
            MessageDroppedException: an intervention dropped the message.
            RuntimeNotRunning: the runtime is not running.
        """
        plan, id = Plan.of(delay, every, at), TimerId.make(to, name)
        if plan == NOW and name is None and isinstance(to, AgentId):
            await self.tell(message, to)
            return Timer(str(id), as_time(self._clock.now_ms()), self)
        node = self._running(f"a timer for {to}")
        caller = self._caller()
        sender = caller.activation.id if caller is not None else None
        if self._watched:
            topic = to if isinstance(to, TopicId) else None
            message = await self._watcher.schedule(message, context_of(sender, topic, None, None), to)
        timed = Timed(id, plan, node.services.wire.encode(message), sender, node.services.wire)
        return Timer(str(id), as_time(await self._set(node, timed, plan)), self)

    async def _set(self, node: Node, timed: Timed, plan: Plan) -> int:
        turn = self._durable_turn()
        if turn is None or is_immediate():
            return await node.client.timers.set(timed)
        await node.client.timers.place(timed.id.to)
        turn.outbox.set_timer(timed)
        return plan.first_due(self._clock.now_ms())

    async def tell(self, message: Any, to: AgentId, *, expects: type | None = None) -> None:
        """Send a message to one agent, without waiting for it; its handler answers nobody.

        From inside a turn it leaves with the turn's commit, in line with what the turn publishes; from outside it is in
        the agent's inbox when this returns. It inherits nothing from the turn that sends it.

        Args:
            message: what is sent.
            to: the agent.
            expects: the class of what its handler returns. When it returns something else, or fails (it gets one
                attempt then), or there is none, the agent whose turn sends this is told by a `SetAside`.

        Raises:
            OutsideTurn: something is expected, and no agent of the server's is there to be told.
            UnregisteredType, MessageTooLarge: the message cannot travel.
            Undeliverable: nobody has hosted the agent's type for `undeliverable_after`.
            MessageDroppedException: an intervention dropped the message.
            RuntimeNotRunning: the runtime is not running.
        """
        if type(to) is not AgentId:
            require_agent(to)
        node = self._running("a message to an agent")
        caller = self._caller()
        sender = None if caller is None else caller.activation.id
        if self._watched:
            message = await self._watcher.schedule(message, context_of(sender, None, None, None), to)
        services, turn = node.services, self._durable_turn()
        if turn is None or is_immediate():
            if expects is not None:
                raise OutsideTurn("tell")
            id = new_message_id()
            if to.type in services.bound_here:
                self._telling.tell(message, to, sender, id)
            else:
                await node.client.transport.tell(services.wire.encode(message), to, sender, message_id=id)
            return
        encoded = services.wire.encode(message)
        if to.type not in services.bound_here:
            await node.client.timers.place(to)
        turn.outbox.tell(message, encoded, to, sender, expects, turn.fence.keys)

    def _give_word(self, word: SetAside, to: AgentId) -> None:
        node = self._running("a word to an agent")
        if to.type in node.services.bound_here:
            super()._give_word(word, to)
        else:
            encoded = self._registry.encode(word)
            self._dispatcher.spawn(node.client.transport.tell(encoded, to, None, message_id=new_message_id()))

    async def cancel_timer(self, id: str) -> bool:
        """Let a timer come no more; from inside a turn, with the turn's commit.

        Args:
            id: that of the timer.

        Returns:
            True when it was still to come.

        Raises:
            ValueError: this is no id of a timer.
            RuntimeNotRunning: the runtime is not running.
        """
        timer, timers = TimerId.parse(id), self._running("cancel_timer").client.timers
        turn = self._durable_turn()
        if turn is None or is_immediate():
            return await timers.cancel(timer)
        is_set = await timers.is_set(timer)
        return turn.outbox.cancel_timer(await timers.place(timer.to), timer) or is_set
