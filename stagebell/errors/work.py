"""Errors of tools, of approvals, and of the conversations of agents that use them."""

from __future__ import annotations

from stagebell.errors.base import StagebellError


class ToolRefused(StagebellError, ValueError):
    """A tool cannot be registered as it is."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"tool {tool!r} is refused: {reason}")
        self.tool = tool
        self.reason = reason


class ToolError(StagebellError):
    """What a tool raises to say what kind of failure it was; its text goes to the model."""


class InvalidArguments(ToolError, ValueError):
    """The arguments are not what the tool takes."""


class Denied(ToolError, PermissionError):
    """Whoever asked may not do this."""


class BusinessError(ToolError):
    """The rules of the business forbid it: the amount is too high, it was done before, it is not theirs."""


class TransientError(ToolError):
    """It may go well another time, and nothing has happened yet."""


class FatalToolError(ToolError):
    """The run cannot go on."""


class UnknownApproval(StagebellError, LookupError):
    """Nobody has asked for this approval, or it is over for long."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no approval {id!r} is waited for: list those that are, perhaps it was decided long ago")
        self.id = id


class AlreadyDecided(StagebellError):
    """Somebody has decided on this approval before: `verdict` says how, `by` who."""

    def __init__(self, id: str, verdict: str, by: str) -> None:
        who = f", by {by}" if by else ""
        super().__init__(f"approval {id!r} was decided before ({verdict}{who}): this changes nothing")
        self.id = id
        self.verdict = verdict
        self.by = by


class SnapshotConflict(StagebellError):
    """A conversation was saved by somebody else meanwhile."""

    def __init__(self, key: str, version: int, newest: int) -> None:
        super().__init__(
            f"conversation {key} cannot be saved as version {version}: version {newest} is there, so this was made "
            "of an old state; load it again"
        )
        self.key = key
        self.version = version
        self.newest = newest


class SnapshotBroken(StagebellError, ValueError):
    """A stored conversation cannot be read."""

    def __init__(self, key: str, place: str, reason: str) -> None:
        super().__init__(
            f"the stored state of conversation {key} in {place} cannot be read: {reason}; it was left as it is, put an "
            "earlier copy in its place"
        )
        self.key = key
        self.place = place
        self.reason = reason


class StoreUnusable(StagebellError, OSError):
    """The place where conversations are stored cannot be read or written."""

    def __init__(self, key: str, place: str, reason: str) -> None:
        super().__init__(
            f"conversation {key} cannot be read from or saved in {place}: {reason}; see that the place exists, is not "
            "full or damaged, and that this process may write there"
        )
        self.key = key
        self.place = place
        self.reason = reason


class UnknownRun(StagebellError, LookupError):
    """There is no run of this id in its conversation."""

    def __init__(self, run_id: str, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(f"no run {run_id!r} is known{reason}. The id of a run is <agent type>/<conversation>#<number>")
        self.run_id = run_id
        self.why = why


class UnknownQuestion(StagebellError, LookupError):
    """A run does not wait for this answer."""

    def __init__(self, run_id: str, call_id: str) -> None:
        super().__init__(f"run {run_id} waits for no answer to call {call_id!r}: perhaps it was answered, or has ended")
        self.run_id = run_id
        self.call_id = call_id


class RunFailed(StagebellError):
    """A run ended without an output; `status` and `reason` are those of its result."""

    def __init__(self, run_id: str, status: str, reason: str, text: str = "") -> None:
        super().__init__(f"run {run_id} has no output, it {status} ({reason}){f': {text}' if text else ''}")
        self.run_id = run_id
        self.status = status
        self.reason = reason
        self.text = text


class OutputRejected(StagebellError):
    """An output is not good enough; the text is for the model, which is asked again."""
