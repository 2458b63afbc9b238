"""Who waits for whom: find a circle of calls before it hangs.

A turn waits for the calls it has open. A call that runs is a turn; a call that waits in a mailbox waits for the open
turns of that agent, except those it descends from (they let it in). A call closes a circle when, over these edges, its
callee waits for the caller or for a turn that awaits the caller.
"""

from __future__ import annotations

from autogen_core import AgentId

from stagebell.runtime.engine.activation import Activation
from stagebell.runtime.engine.turn import Entry, Turn


def find_cycle(caller: Turn, callee: Activation) -> list[AgentId] | None:
    """The agents of the circle that a call from `caller` to the busy `callee` would close, or None.

    The circle names its first agent again at the end.
    """
    # Depth first, without recursion: chains of calls can be longer than the interpreter's stack.
    seen: set[Turn] = set()
    stack: list[tuple[Turn, list[AgentId]]] = [(turn, []) for turn in _blocking(callee, caller)]
    while stack:
        turn, path = stack.pop()
        if turn in seen:
            continue
        seen.add(turn)
        path = [*path, turn.activation.id]
        if caller.descends_from(turn):
            return [*_chain_between(turn, caller), *path]
        for call in turn.calls or ():
            stack.extend((blocking, path) for blocking in _turns_of(call))
    return None


def _chain_between(ancestor: Turn, descendant: Turn) -> list[AgentId]:
    chain = [descendant.activation.id]
    turn = descendant
    while turn is not ancestor and turn.parent is not None:
        turn = turn.parent
        chain.append(turn.activation.id)
    return chain[::-1]


def _turns_of(call: Turn | Entry) -> list[Turn]:
    if isinstance(call, Turn):
        return [call]
    if call.turn is not None:
        return [call.turn]
    if call.reply is not None and call.reply.done():  # answered, and its caller is about to learn it
        return []
    if call.activation is None or call.parent is None:
        return []
    return _blocking(call.activation, call.parent)


def _blocking(callee: Activation, caller: Turn) -> list[Turn]:
    turns = callee.open_turns()
    if not callee.hosted.reentrant:
        return turns
    return [turn for turn in turns if not caller.descends_from(turn)]
