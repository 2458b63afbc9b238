"""Which agents stay in memory. The state of an agent is stored with each of its turns, so an idle one can be dropped.

An agent that saves state is passivated when it was idle for `passivate_after`, or when more than `max_agents_in_memory`
are there and it was used the longest time ago; so is one whose class declares that it is stateless. Another that saves
none is never passivated: it would forget.

Every way by which the instance of an agent leaves this process; each closes it once, when no turn of it is open
    - passivated (here)
    - its partition goes to another worker: handed over (`Ownership`, closed before the other may run it), or the lease
      was lost (`Partition.lose`)
    - its state is discarded, since its turn failed or memory and store disagree (`TurnEnding`, `DurableTurn`)
    - its state could not be loaded, so it never handled anything (`Catalog.agent_of`)
    - the runtime starts again, and others may have run it meanwhile (`Hosting`)
    - the runtime is closed (`Catalog.close`)
Agents bound to the process leave by the last one only. A process that is killed closes nothing.

What holds at all times
    - `_order` has the agents in memory that may leave it, those not used for the longest time in front, each with the
      time of its last use.
    - Only an agent that is idle, with its last commit answered, is passivated. Nothing is kept of one that has left;
      while it is being closed, or a turn that lost its ground has not ended, it is in `_shells`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.redis.partition import Partition
from stagebell.runtime.redis.storage import Stored

if TYPE_CHECKING:
    from stagebell.runtime.redis.services import Services

_AT_ONCE = 64  # so many leave before others get their turn
_ENOUGH = 8  # for each agent that comes at most so many are looked at: when all are busy there are more for a while


class Passivation:
    """The agents of one runtime that can be loaded again."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._order: OrderedDict[Activation, float] = OrderedDict()
        self._shells: dict[Activation, None] = {}
        self._now = asyncio.get_running_loop().time()  # as of the last look: precise enough, and costs a turn nothing

    def used(self, activation: Activation) -> None:
        """A turn of an agent that may leave memory begins."""
        self._order[activation] = self._now
        self._order.move_to_end(activation)

    def loaded(self, activation: Activation) -> None:
        """Such an agent comes into memory; another may have to leave for it."""
        self.used(activation)
        surplus = len(self._order) - self._services.settings.max_agents_in_memory
        for _ in range(_ENOUGH):
            if surplus <= 0:
                break
            surplus -= self._passivate_first()

    def leave(self, activation: Activation) -> None:
        """The instance of an agent, if there is one, is not to be used any more."""
        if activation.hosted.process_bound:
            return
        self._order.pop(activation, None)
        self._services.dispatcher.retiring.retire(activation)
        if not self._forget(activation):
            self._shells[activation] = None

    async def close_all(self, agents: Iterable[Activation]) -> None:
        """Let idle agents leave, and wait until they are closed; one that takes longer than `stop_grace` is left."""
        leaving = list(agents)
        for activation in leaving:
            self.leave(activation)
        closing = [activation.making for activation in leaving if activation.making is not None]
        if closing:
            await asyncio.wait(closing, timeout=self._services.settings.stop_grace)

    async def look(self) -> None:
        """Passivate who was idle for too long, or is one too many; called about twice a second."""
        self._now = asyncio.get_running_loop().time()
        for activation in list(self._shells):
            if self._forget(activation):
                del self._shells[activation]
        for number in range(1, len(self._order) + 1):
            if not self._somebody_should_leave():
                return
            self._passivate_first()
            if not number % _AT_ONCE:
                await asyncio.sleep(0)

    def _somebody_should_leave(self) -> bool:
        if len(self._order) > self._services.settings.max_agents_in_memory:
            return True
        if not self._order:
            return False
        return self._order[next(iter(self._order))] <= self._now - self._services.settings.passivate_after

    def _passivate_first(self) -> bool:
        """Let the first in the line leave; False when it is busy, then it goes to the end."""
        activation, _ = self._order.popitem(last=False)
        stored = activation.stored
        commits = isinstance(stored, Stored) and stored.under_way
        if activation.agent is not None and (commits or not activation.idle):
            self._order[activation] = self._now
            return False
        self.leave(activation)
        return True

    def _forget(self, activation: Activation) -> bool:
        """Let nothing of an agent remain that is not in memory; False while something of it is under way."""
        if activation.agent is not None:
            return True  # it is back
        if not activation.idle or activation.retired is not None:
            return False
        id, live = activation.id, activation.hosted.live
        if live.get(id.key) is activation:
            del live[id.key]
        place = self._services.directory.place(id)
        partition = self._services.partitions.get(place.tag) if place is not None else None
        if isinstance(partition, Partition) and partition.agents.get(id.key) is activation:
            del partition.agents[id.key]
        return True
