"""The steps of a call's life that need nothing but the call and its tool; see `lifecycle`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable
from typing import Any, Final, Never, cast

from pydantic_core import from_json

from stagebell.errors import InvalidArguments, ToolError
from stagebell.messages.tool_calls import ErrorCode
from stagebell.tools.containing import as_error, called, contained, passes
from stagebell.tools.context import ToolContext
from stagebell.tools.lifecycle import Ended, Life, NeedsApproval
from stagebell.tools.policy import cleaned, code_of, text_of
from stagebell.tools.running import run_limited


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON")


_json: Final = json.JSONDecoder(parse_constant=_refuse)


def parse(life: Life[Any]) -> Ended:
    """The arguments out of the text that the model wrote, or out of what a person put in its place."""
    if life.decided is not None and life.decided.arguments is not None:
        life.given = life.decided.arguments
        life.note = "rewritten", "by a person"
        return None
    try:
        found: object = _read(life.call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return life.failed(ErrorCode.INVALID_ARGUMENTS, cleaned(f"the arguments are not JSON: {error}"))
    if not isinstance(found, dict):
        return life.failed(ErrorCode.INVALID_ARGUMENTS, f"the arguments are a JSON {_kind(found)}, not an object")
    life.given = cast("dict[str, Any]", found)
    return None


def _read(text: str) -> Any:
    """JSON data. Raises ValueError or RecursionError for anything else."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return _json.decode(text)  # it takes halves of surrogate pairs, and says better what is wrong


def validate(life: Life[Any]) -> Ended:
    """The arguments as the tool takes them, defaults filled in."""
    try:
        life.checked = life.found.checked(life.given)
    except InvalidArguments as error:
        return life.failed(ErrorCode.INVALID_ARGUMENTS, text_of(error))
    return None


async def authorise(life: Life[Any]) -> Ended:
    """Well-typed is not allowed: whether this call is, the tool's `authorise` says."""
    hook = life.found.declares.authorise
    if hook is None:
        return None
    context = life.context()
    try:
        allowed: Any = called(hook, life.arguments, context)
        if inspect.isawaitable(allowed):
            allowed = await _waited(life, allowed, context)
    except ToolError as error:
        return life.failed(code_of(error), text_of(error))
    except Exception as error:
        return life.failed(ErrorCode.DENIED, f"it could not be found out whether this is allowed: {text_of(error)}")
    except BaseException as error:
        if passes(error):
            raise
        return life.failed(ErrorCode.FATAL, f"authorise failed: {text_of(as_error(error))}")
    return None if allowed else life.failed(ErrorCode.DENIED, f"this call of {life.found.name!r} is not allowed")


async def _waited(life: Life[Any], allowed: Awaitable[Any], context: ToolContext[Any]) -> Any:
    """What an async hook says, with the same done about what it raises as about a tool's."""
    name, token = f"{life.found.name} (authorise)", context.cancellation_token
    return await run_limited(contained(allowed, context), name, token=token, stop=life.stop, seconds=None)


def check_idempotency(life: Life[Any]) -> Ended:
    """A call that was answered before gets the same answer."""
    if life.earlier is not None:
        life.note = "repeated", "it was answered before"
    return life.earlier


def approve(life: Life[Any]) -> Ended:
    """A person agrees, where the tool asks for that; a call that was rejected does not run in any case."""
    if life.decided is not None:
        if life.decided.approved:
            return None
        text = f"it was not approved: {life.decided.reason or 'no reason given'}"
        return life.failed(ErrorCode.DENIED, cleaned(text))
    if not called(life.found.declares.needs_approval, life.arguments):
        return None
    return NeedsApproval(life.call, life.run_id, life.arguments)


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "text" if isinstance(value, str) else "array" if isinstance(value, list) else "number"
