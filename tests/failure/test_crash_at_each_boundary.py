"""A worker dies before, or after, each single script that it sends: whatever the boundary, each effect comes once.

In which order effects are written, for one turn:

    1. begin    when the handler waits for something: the attempt is counted, nothing else
    2. call     each call leaves when it is made: request into the callee's inbox and into the turn's journal,
                one script; a turn that runs again finds it there and does not send it again
    2b. retry   when the handler of a published message raised: the failure is counted, the input stays
    3. what the handler does outside of the runtime: whenever it does it, so before 4, and again in another attempt
    4. commit   one script, all or nothing: new state, publishes into their inboxes, reply (to the journal of the
                calling turn, or to the client), removal of the input, journal and attempts

So a worker can die in two ways only. Before the commit reached the server: the input is still in the inbox, and the
worker that takes over runs the turn again. After it: the turn is over, and nobody runs it again. There is no
boundary between a turn's state, its outputs, its reply and the removal of its input, and this test looks for one:
for N = 1, 2, 3, … it lets a worker die at its N-th script, until a run has fewer than N.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest
from autogen_core import AgentId, TopicId

from stagebell import Publisher, RedisRuntime
from stagebell.tools.approval_messages import ApprovalDecision
from stagebell.tools.approvals import DESK, Approvals, desk_of
from tests.failure.agents import FILES, Count, File, Measure, Measured
from tests.failure.boundaries import boundaries_of
from tests.failure.crashes import Moment, Victim
from tests.failure.desks import Inquire, Remind, Settle
from tests.failure.hopping import Hop
from tests.failure.office import Agree, Done, Walk
from tests.failure.setups import SETUPS
from tests.failure.troubles import ALARMS, Trouble
from tests.failure.view import View
from tests.failure.visits import Round
from tests.support.servers import Server, available_kinds
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration]

AT_ONCE = 2
MOMENTS: tuple[Moment, ...] = ("before", "after", "frozen")
APPROVAL = "r1:c1"
DECISION = ApprovalDecision(id=APPROVAL, verdict="approve", by="ann").model_dump(mode="json")
HALVES = list(zip(cycle(available_kinds()), MOMENTS, strict=False))

States = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Story:
    """What is asked from outside, and the one end that it may have.

    Attributes:
        setup: the agents.
        ask: sends everything and returns the reply of the last call.
        reply: what it must be.
        states: of every agent at the end.
        letters: the attempts of each dead letter; those whose worker died come on top.
        least: how many scripts a worker needs for it; a run with fewer has tested nothing.
    """

    setup: str
    ask: Callable[[Publisher], Awaitable[Any]]
    reply: Any
    states: States
    least: int
    letters: tuple[int, ...] = ()


async def _files(publisher: Publisher) -> Any:
    """An event and then a call to one agent, which for each publishes to a second and calls a third."""
    await publisher.publish(File(sender="client", number=1), TopicId(FILES, "a"))
    reply = await publisher.call(Measure(sender="client", number=2), AgentId("analyser", "a"))
    return reply.number, reply.noted


async def _there_and_back(publisher: Publisher) -> Any:
    """Agent a calls b, which calls a back, which calls b again: turns inside of turns."""
    reply = await publisher.call(Hop(to=["b", "a", "b"]), AgentId("hopper", "a"))
    return reply.count


async def _answered_later(publisher: Publisher) -> Any:
    """A turn waits for a reply that its callee puts off, until another turn of the callee gives it."""
    asked = asyncio.create_task(publisher.call(Inquire(desk="a"), AgentId("inquirer", "a")))
    while (await publisher.call(Settle(), AgentId("desk", "a"))).count == 0:
        await asyncio.sleep(0.01)  # the question has not arrived
    return (await asked).count


async def _a_message_that_fails(publisher: Publisher) -> Any:
    """A publish whose handler raises each time, and one to the same agent that has to wait for its end."""
    await publisher.publish(Trouble(kind="ValueError", number=1), TopicId(ALARMS, "t"))
    await publisher.publish(Trouble(kind="none", number=2), TopicId(ALARMS, "t"))
    reply = await publisher.call(Trouble(kind="none", number=3), AgentId("troubled", "t"))
    return reply.count


async def _reminded(publisher: Publisher) -> Any:
    """A turn sets timers: one brings a message to an agent, one a publish."""
    return (await publisher.call(Remind(delay=0.02), AgentId("reminder", "a"))).count


async def _walked(publisher: Publisher) -> Any:
    """An agent tells itself to go on, twice, and another one each time; the last turn answers."""
    publisher.register(Done)
    return (await publisher.call(Walk(steps=2), AgentId("walker", "a"))).text


async def _agreed(publisher: Publisher) -> Any:
    """A call waits until a person has decided: at the desk, and for an answer that comes later."""
    publisher.register(Done)
    asked = asyncio.create_task(publisher.call(Agree(id=APPROVAL), AgentId("asker", "a")))
    approvals = Approvals(publisher)
    await eventually(approvals.list, within=20)
    assert await approvals.approve(APPROVAL, by="ann")
    return (await asked).text


def _round(**options: Any) -> Callable[[Publisher], Awaitable[Any]]:
    """A host visits two guests at once, and both come back to it while it waits."""

    async def ask(publisher: Publisher) -> Any:
        reply = await publisher.call(Round(guests=["b", "c"], **options), AgentId("host", "h"))
        return reply.count

    return ask


def _kept(heard: dict[str, list[int]], **sent: int) -> dict[str, Any]:
    return {"heard": heard, "sent": sent}


def _visits(ask: Callable[[Publisher], Awaitable[Any]], *guests: str, least: int) -> Story:
    """Each nested turn took effect once, and so did each step of the turn between them."""
    steps = {f"{step} {guest}": 1 for guest in guests for step in ("to", "visitor", "from")}
    host = {"heard": {}, "sent": {"round": 1, "home": 1, **steps}}
    return Story("visits", ask, 2, {"host": {"h": host}, "guest": {g: _kept({}, host=1) for g in guests}}, least)


STORIES = {
    "publish and call": Story(
        "audit",
        _files,
        (2, 1),
        {
            "analyser": {"a": _kept({"client": [1, 2]}, t1=1, c2=1, t2=1, c4=1)},
            "collector": {"c2": _kept({"a": [1]}), "c4": _kept({"a": [1]})},
            "tally": {"t1": _kept({"a": [1]}), "t2": _kept({"a": [1]})},
        },
        least=12,
    ),
    "a call that comes back": Story(
        "troubles",
        _there_and_back,
        4,
        {"hopper": {"a": _kept({}, anybody=2), "b": _kept({}, anybody=2)}},
        least=8,
    ),
    "a reply that comes later": Story(
        "desks",
        _answered_later,
        10,
        {
            "inquirer": {"a": _kept({}, a=1, answered=10)},
            "desk": {"a": {**_kept({}, questions=1, answers=1), "open": {}}},
            "tally": {"desk": _kept({"a": [1]})},
        },
        least=7,
    ),
    "a publish that fails": Story(
        "troubles",
        _a_message_that_fails,
        2,
        {
            "troubled": {"t": {**_kept({"none": [2, 3]}), "ballast": ""}},
            "tally": {"trouble": _kept({"t": [2, 3]})},
        },
        least=6,
        letters=(3,),
    ),
    "messages that come later": Story(
        "reminders",
        _reminded,
        2,
        {
            "reminder": {"a": {"heard": {}, "sent": {"collector/late": 1, "done/late": 1}}},
            "collector": {"late": _kept({"a": [1]})},
            "tally": {"late": _kept({"a": [1]})},
        },
        least=6,
    ),
    "messages told": Story(
        "office",
        _walked,
        "3 steps",
        {"stamps": {"a": {"numbers": [2, 1, 0]}}},
        least=5,
    ),
    "a call that a person agrees to": Story(
        "office",
        _agreed,
        "approve by ann",
        {
            "asker": {"a": {"waiting": {}, "decided": ["approve"]}},
            DESK: {desk_of(APPROVAL).key: {"pending": {}, "decided": {APPROVAL: DECISION}}},
        },
        least=4,
    ),
    "calls at once that both come back": _visits(_round(pauses=[0.03, 0.0]), "b", "c", least=10),
    "nested turns whose calls come back": _visits(_round(deep=True), "b", "c", "b-inner", "c-inner", least=18),
}


class Trial:
    """One run of a story in a namespace of its own, with a worker that dies at its N-th script."""

    def __init__(self, story: Story, url: str, view: View, moment: Moment, number: int) -> None:
        self._story = story
        self._url = url
        self._view = view
        self._options: dict[str, Any] = {"namespace": view.namespace, "partitions": 1, "lease": 0.6}
        self._victim = Victim(story.setup, moment, number, url, **self._options)

    async def run(self) -> bool:
        """Returns False when the worker had fewer scripts to send, so that it lived."""
        try:
            await self._victim.ready()
            async with Publisher(self._url, namespace=self._view.namespace) as publisher:
                publisher.register(Measured, Count)
                asked = asyncio.ensure_future(self._story.ask(publisher))
                await eventually(lambda: self._victim.stopped or (asked.done() and self._rests()), 10)
                if self._victim.frozen:
                    return await self._outlive(asked)
                died = await self._victim.stop()
                if died:
                    await self._take_over(asked)
                self._check(await asked)
            return died
        finally:
            self._victim.kill()

    async def _outlive(self, asked: asyncio.Future[Any]) -> bool:
        """Somebody else ends the work while the victim stands still; then it goes on, and changes nothing."""
        await self._take_over(asked)
        self._check(await asked)
        self._victim.thaw()
        await self._victim.stop()
        self._check(await asked)
        return True

    async def _take_over(self, asked: asyncio.Future[Any]) -> None:
        successor = RedisRuntime(self._url, **self._options)
        await SETUPS[self._story.setup](successor)  # all its types before the first message comes
        async with successor:
            await eventually(lambda: asked.done() and self._rests(), 10)

    def _rests(self) -> bool:
        return self._view.timers() == 0 and self._view.backlog() == 0 and not self._view.left_behind()

    def _check(self, reply: Any) -> None:
        assert reply == self._story.reply
        assert {kind: self._view.states(kind) for kind in self._story.states} == self._story.states
        attempts = [int(letter["attempts"]) for letter in self._view.dead_letters()]
        assert len(attempts) == len(self._story.letters)
        assert all(n <= found <= n + 1 for n, found in zip(self._story.letters, attempts, strict=True)), attempts
        assert not self._view.left_behind()
        assert not self._view.against_the_list()


LONG = "nested turns whose calls come back"
PARAMS = [pytest.param(story, id=name, marks=[pytest.mark.torture] * (name == LONG)) for name, story in STORIES.items()]


@pytest.mark.parametrize("story", PARAMS)
@pytest.mark.parametrize(("server", "moment"), HALVES, indirect=["server"])
async def test_a_worker_that_dies_at_any_of_its_scripts_leaves_each_effect_once(
    server: Server, namespace: str, story: Story, moment: Moment
) -> None:
    """I9: the turn that runs again sees the replies and savepoints that others saw."""

    async def trial(view: View, number: int) -> bool:
        return await Trial(story, server.url, view, moment, number).run()

    assert await boundaries_of(server, namespace, trial, at_once=AT_ONCE) >= story.least
