"""Calls that no tool of this process answers: another agent does, takes over altogether, or a person is asked.

To the model each of them looks like a tool. The run does not keep a turn open for them: it tells the other side, and
waits; hours later the answer comes as a message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, cast

from autogen_core import AgentId
from autogen_core.tools import ParametersSchema, ToolSchema

from stagebell.agents.state import CallKind, Pending
from stagebell.errors import ToolRefused
from stagebell.messages.tool_calls import AnyDecision, Ask, ErrorCode, HandOff, ToolCall, UseTools
from stagebell.messages.trusted import trusted

ASK: Final = "ask_person"
_ALONE: Final = "{name} was called together with other tools: call it alone"


@dataclass(frozen=True, slots=True)
class Delegate:
    """Another agent, as the model sees it; made by `agent_tool` and `handoff`.

    Attributes:
        agent_type: the type of the agent.
        name: of the tool.
        description: what the model is told of it.
        takes_over: its output becomes that of the run.
        fresh: each call has a conversation of its own.
    """

    agent_type: str
    name: str
    description: str
    takes_over: bool = False
    fresh: bool = False

    @property
    def schema(self) -> ToolSchema:
        """What the model is shown."""
        said = "what it has to know to go on" if self.takes_over else "what it is to do, with all that it has to know"
        return _schema(self.name, self.description, "message" if self.takes_over else "task", said)


def agent_tool(agent_type: str, *, description: str, name: str | None = None, fresh: bool = False) -> Delegate:
    """Another agent as a tool: a call gives it a task, and its output is the result.

    Its run gets a share of what this run has left of steps, tokens, cost, time and hops, and what it uses counts here.

    Args:
        agent_type: the type of the agent, a `ModelAgent` of any process.
        description: what it can do; the model is told.
        name: of the tool, by default the type.
        fresh: each call is a conversation of its own; by default the agent remembers those before, and two calls made
            at once wait for each other.
    """
    return Delegate(agent_type, name or agent_type, description, fresh=fresh)


def handoff(agent_type: str, *, description: str = "", name: str | None = None) -> Delegate:
    """Another agent that may take over: it goes on with the task, and its output is that of the run.

    Args:
        agent_type: the type of the agent, a `ModelAgent` of any process.
        description: when to hand over to it; the model is told.
        name: of the tool, by default "transfer_to_" and the type.
    """
    told = description or f"Hand the task over to {agent_type}."
    return Delegate(agent_type, name or f"transfer_to_{agent_type}", told, takes_over=True)


class Delegates:
    """Those of one agent, by the names of their tools; `schemas` is what the model is shown.

    Args:
        delegates: the agents.
        ask_person: the model may ask a person, too.
        taken: names that tools have.

    Raises:
        ToolRefused: two have one name.
    """

    def __init__(self, delegates: Sequence[Delegate], *, ask_person: bool, taken: Sequence[str] = ()) -> None:
        self._by_name: dict[str, Delegate] = {}
        self._ask = ask_person
        names: set[str] = {*taken, *([ASK] if ask_person else [])}
        for each in delegates:
            if each.name in names:
                raise ToolRefused(each.name, "another tool of this name is registered here")
            names.add(each.name)
            self._by_name[each.name] = each
        self.schemas = [each.schema for each in delegates]
        if ask_person:
            told = "Ask a person, when only a person can know or decide. The answer may take long."
            self.schemas.append(_schema(ASK, told, "question", "the question"))

    @property
    def names(self) -> tuple[str, ...]:
        """What the model calls them."""
        return (*self._by_name, ASK) if self._ask else tuple(self._by_name)

    def find(self, name: str) -> Delegate | None:
        """The agent behind the tool of this name."""
        return self._by_name.get(name)

    def kind(self, name: str) -> CallKind:
        """What a call of this name is done by."""
        found = self._by_name.get(name)
        if found is not None:
            return "handoff" if found.takes_over else "run"
        return "question" if self._ask and name == ASK else "tool"

    def decision(self, calls: Sequence[ToolCall], text: str) -> AnyDecision:
        """What calls of the model mean."""
        if len(calls) == 1:
            call = calls[0]
            kind = self.kind(call.name)
            if kind == "handoff":
                return HandOff(to=self._by_name[call.name].agent_type, message=said_in(call), call=call)
            if kind == "question":
                return Ask(question=said_in(call), call=call)
        return trusted(UseTools, calls=tuple(calls), text=text)

    def pending(self, call: ToolCall, group: int, *, alone: bool) -> Pending:
        """The plan for a call; one that hands over has to be the only one."""
        kind = self.kind(call.name)
        found = self._by_name.get(call.name)
        if kind == "handoff" and not alone:
            return Pending(call, group, refused=_ALONE.format(name=call.name))
        return Pending(call, group, kind, to="" if found is None else found.agent_type)


def said_in(call: ToolCall) -> str:
    """The one text among the arguments of a call; what the model wrote, when there is none."""
    try:
        arguments: Any = json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments
    values = cast("dict[str, Any]", arguments).values() if isinstance(arguments, dict) else ()
    texts = [value for value in values if isinstance(value, str)]
    return texts[0] if texts else call.arguments


def child_agent(delegate: Delegate, own: AgentId, path: Sequence[str], run_id: str, call_id: str) -> AgentId:
    """The conversation of the other agent that a call goes to.

    It has the key of this conversation. One whose run leads to this one waits for it, and could not take the task: then
    the call gets a conversation of its own.
    """
    usual = AgentId(delegate.agent_type, own.key)
    if not delegate.fresh and str(usual) not in path:
        return usual
    return AgentId(delegate.agent_type, f"{own.key}~{_short(run_id, call_id)}")


def child_run_id(agent: AgentId, run_id: str, call_id: str) -> str:
    """The id of the run that a call starts: the same when the call is made again."""
    return f"{agent}#{_short(run_id, call_id)}"


def unheard(call: ToolCall) -> str | None:
    """Why the arguments of a call to an agent or a person cannot be used, if so."""
    return (
        None if said_in(call).strip() not in ("", "{}") else f"{call.name} needs a text ({ErrorCode.INVALID_ARGUMENTS})"
    )


def _short(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


def _schema(name: str, description: str, argument: str, said: str) -> ToolSchema:
    properties = {argument: {"type": "string", "description": said}}
    parameters = ParametersSchema(type="object", properties=properties, required=[argument], additionalProperties=False)
    return ToolSchema(name=name, description=description, parameters=parameters)
