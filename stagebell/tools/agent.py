"""`ToolAgent`: calls of tools arrive as messages and are answered with their results.

It takes the place of AutoGen's agent of this name. Calls are run one at a time, in the order in which they came, but
for those whose tools declare that they may overlap.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from autogen_core import AgentRuntime, AgentType, FunctionCall, MessageContext, RoutedAgent, message_handler
from autogen_core.models import FunctionExecutionResult
from autogen_core.tool_agent import (
    InvalidToolArgumentsException,
    ToolException,
    ToolExecutionException,
    ToolNotFoundException,
)
from pydantic import BaseModel

from stagebell.errors import AlreadyAnswered, Undeliverable, UnregisteredType
from stagebell.messages.set_aside import SetAside
from stagebell.messages.tool_calls import ErrorCode, ToolCall, ToolResult
from stagebell.runtime.engine.deferred import DeferredReply, defer_reply
from stagebell.runtime.engine.options import agent_options
from stagebell.tools.approval_messages import ApprovalDecision, ApprovalRequest, decision_in
from stagebell.tools.approvals import ask_for_approval, register_desk, withdraw_approval
from stagebell.tools.executor import Executor
from stagebell.tools.guardrails import Guardrail
from stagebell.tools.ledger import TurnLedger
from stagebell.tools.lifecycle import NeedsApproval, ToolEvent
from stagebell.tools.line import Line
from stagebell.tools.toolset import AnyTool, Toolset

logger = logging.getLogger("stagebell")

DepsT = TypeVar("DepsT")

_NO_ID: Final = "-"  # of a call that came without one, as those of some models do

_EXCEPTIONS: dict[ErrorCode, type[ToolException]] = {
    ErrorCode.UNKNOWN_TOOL: ToolNotFoundException,
    ErrorCode.INVALID_ARGUMENTS: InvalidToolArgumentsException,
}


class ToolAgentOptions(TypedDict, total=False):
    """What a `ToolAgent` can be told besides its tools."""

    guardrails: Sequence[Guardrail]
    errors: Literal["raise", "return"]
    on_event: Callable[[ToolEvent], None] | None
    patience: float
    approvals_expire_after: float | None


class CallGivenUp(BaseModel):
    """A call for which a person was asked is not waited for any more; a `ToolAgent` is told."""

    approval: str


@agent_options(concurrency="interleaved", stateless=True)  # its line of calls keeps the order
class ToolAgent(RoutedAgent, Generic[DepsT]):
    """Runs tools for others: a `FunctionCall` is answered with a `FunctionExecutionResult`.

    The idempotency key of a call is the id of the message that it came in, and the id of the call. It is the same when
    a worker dies and another one runs the message again; a caller that sends a call once more sends another call.

    Args:
        description: of the agent.
        tools: tools made with `tool`, AutoGen's tools, and workbenches.
        deps: what tools with a `ToolContext` work with.
        guardrails: judge the arguments and the results of calls.
        errors: "raise" (default): as AutoGen's agent does, a call without a value ends in a `ToolException`, whose
            `code` says why; "return": in a result with `is_error`.
        on_event: is told of each step of each call; what it raises is logged.
        patience: seconds to wait for a service that says "processing" of a call.
        approvals_expire_after: seconds in which a person has to agree to a call that needs it; by default any time.

    Raises:
        ToolRefused: two tools have one name, or one of them cannot be a tool.
    """

    @overload
    def __init__(
        self: ToolAgent[None],
        description: str,
        tools: Sequence[AnyTool[None]],
        *,
        deps: None = None,
        **options: Unpack[ToolAgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, description: str, tools: Sequence[AnyTool[DepsT]], *, deps: DepsT, **options: Unpack[ToolAgentOptions]
    ) -> None: ...
    def __init__(
        self, description: str, tools: Sequence[Any], *, deps: Any = None, **options: Unpack[ToolAgentOptions]
    ) -> None:
        super().__init__(description)
        self._given = tools
        self._deps: DepsT = deps
        self._errors = options.get("errors", "raise")
        self._expiry = options.get("approvals_expire_after")
        self._line = Line()
        self._executor = Executor[DepsT](
            Toolset[DepsT](tools),
            guardrails=options.get("guardrails", ()),
            ledger=TurnLedger(),
            sink=options.get("on_event"),
            patience=options.get("patience", 30.0),
        )

    @property
    def tools(self) -> list[Any]:
        """The tools that the agent was given."""
        return list(self._given)

    @property
    def toolset(self) -> Toolset[DepsT]:
        """The tools by their names, those of workbenches included once they were asked for."""
        return self._executor.tools

    @classmethod
    async def register(
        cls,
        runtime: AgentRuntime,
        type: str,
        factory: Callable[[], Any],
        *,
        skip_class_subscriptions: bool = False,
        skip_direct_message_subscription: bool = False,
        approvals: bool = False,
    ) -> AgentType:
        """Register agents of this class, as AutoGen's `register` does.

        Args:
            runtime: where.
            type: the name of the agent type.
            factory: makes an agent.
            skip_class_subscriptions: as in AutoGen's.
            skip_direct_message_subscription: as in AutoGen's.
            approvals: a tool of theirs has `requires_approval`: the desk where such calls wait is registered too.
        """
        skips = skip_class_subscriptions, skip_direct_message_subscription
        registered = await super().register(
            runtime, type, factory, skip_class_subscriptions=skips[0], skip_direct_message_subscription=skips[1]
        )
        if approvals:
            await register_desk(runtime)
        return registered

    @message_handler
    async def handle_function_call(self, message: FunctionCall, ctx: MessageContext) -> FunctionExecutionResult | None:
        """Run a tool; the reply to a call that needs approval comes with the decision.

        Args:
            message: the call.
            ctx: of the message.

        Returns:
            What the tool returned: a text as it is, everything else as JSON.

        Raises:
            ToolNotFoundException: there is no such tool.
            InvalidToolArgumentsException: the arguments are no JSON object, or not what the tool takes.
            ToolExecutionException: the call was refused, or the tool failed; `code` says how.
        """
        call = ToolCall.model_construct(id=message.id or _NO_ID, name=message.name, arguments=message.arguments)
        result = await self._run(call, ctx.message_id, ctx)
        if isinstance(result, NeedsApproval):
            await self._ask(result)
            return None
        if result.is_error and self._errors == "raise":
            raise as_exception(result)
        return _reply(result)

    @message_handler
    async def handle_approval_decision(self, message: ApprovalDecision, ctx: MessageContext) -> None:
        """Go on with a call that waited for a person, and answer whoever made it.

        Args:
            message: what was decided.
            ctx: of the message.
        """
        if message.call is None:
            return  # it comes from elsewhere than the desk
        asked = _Asked.model_validate_json(message.context)
        call = message.call.model_copy(update={"arguments": asked.arguments})
        result = await self._run(call, message.run_id, ctx, message)
        assert isinstance(result, ToolResult)  # it was decided
        try:
            await self._answer(asked.handle, result)
        except AlreadyAnswered:
            logger.warning("call %s of tool %s was decided, and nobody waits for it", message.id, message.call.name)

    @message_handler
    async def handle_given_up(self, message: CallGivenUp, ctx: MessageContext) -> None:
        """Take back what a person was asked about a call: whoever made it waits no more.

        Args:
            message: the call.
            ctx: of the message.
        """
        reason = "whoever made the call waits no more"
        await withdraw_approval(self.runtime, message.approval, by=self.id, reason=reason)

    @message_handler
    async def handle_set_aside(self, message: SetAside, ctx: MessageContext) -> None:
        """Answer a call that a person has decided about, and that nobody can go on with: its worker died each time.

        Args:
            message: the decision that went to the dead letters.
            ctx: of the message.
        """
        decision = decision_in(message)
        if decision is None or decision.call is None:
            return
        text = f"it was decided about, and could not be run: {message.reason}; whether it had its effect is not known"
        with suppress(AlreadyAnswered):
            handle = _Asked.model_validate_json(decision.context).handle
            await self._answer(handle, ToolResult.error(decision.call, ErrorCode.OUTCOME_UNKNOWN, text))

    async def _run(
        self, call: ToolCall, run_id: str, ctx: MessageContext, decided: ApprovalDecision | None = None
    ) -> ToolResult | NeedsApproval:
        async with self._line.place(self._executor.access(call.name)):
            return await self._executor.run(
                call, run_id=run_id, deps=self._deps, token=ctx.cancellation_token, decided=decided
            )

    async def _answer(self, handle: DeferredReply, result: ToolResult) -> None:
        if result.is_error and self._errors == "raise":
            await handle.fail(as_exception(result))
        else:
            await handle.answer(_reply(result))

    async def _ask(self, asked: NeedsApproval) -> None:
        """Let the call wait at the desk, where its arguments are shown as the tool would get them."""
        handle = defer_reply(if_given_up=CallGivenUp(approval=asked.key))
        shown = json.dumps(asked.arguments, ensure_ascii=False)
        expires = None if self._expiry is None else round((time.time() + self._expiry) * 1000)
        request = ApprovalRequest(
            id=asked.key,
            run_id=asked.run_id,
            call=asked.call.model_copy(update={"arguments": shown}),
            agent=str(self.id),
            expires_at=expires,
            context=_Asked(handle=handle, arguments=asked.call.arguments).model_dump_json(),
        )
        try:
            await ask_for_approval(self.runtime, request)
        except (Undeliverable, UnregisteredType):
            text = f"tool {asked.call.name!r} needs approval, and there is no desk: register with approvals=True"
            await self._answer(handle, ToolResult.error(asked.call, ErrorCode.DENIED, text))

    async def close(self) -> None:
        """Stop the workbenches."""
        await self._executor.tools.close()


class _Asked(BaseModel):
    """What is needed to go on with a call when it was decided: whom to answer, and what the model wrote."""

    handle: DeferredReply
    arguments: str


def as_exception(result: ToolResult) -> ToolException:
    """The exception of AutoGen's that stands for a call without a value; its text is what happened."""
    cls = _EXCEPTIONS.get(result.code or ErrorCode.FATAL, ToolExecutionException)
    error = cls(call_id=_id_of(result), content=result.text, name=result.tool_name)
    error.args = (result.text,)  # AutoGen leaves them empty, and with them the text that models are told
    error.__dict__["code"] = str(result.code)
    return error


def _id_of(result: ToolResult) -> str:
    return "" if result.call_id == _NO_ID else result.call_id


def _reply(result: ToolResult) -> FunctionExecutionResult:
    return FunctionExecutionResult(
        content=result.text, call_id=_id_of(result), is_error=result.is_error, name=result.tool_name
    )
