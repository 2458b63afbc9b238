"""What the outside is told when a run has ended: a line in the log, and metrics.

It is told before the turn is committed, so once more when that turn runs again.
"""

from __future__ import annotations

import logging

from autogen_core import AgentId

from stagebell.messages.conversation import RunResult
from stagebell.runtime.engine.metrics import count_run, count_usage

logger = logging.getLogger("stagebell")


def tell_end(agent: AgentId, result: RunResult, *, started_by_a_run: bool) -> None:
    """Tell that a run has ended.

    The record has the fields `run_id`, `status`, `reason`, `step` and `last_tool`, for handlers that write JSON.
    """
    count_run(agent.type, result.status, result.reason)
    if not started_by_a_run:
        count_usage(agent.type, result.steps, result.usage.prompt_tokens, result.usage.completion_tokens)
    if logger.isEnabledFor(logging.INFO):
        fields = {
            "run_id": result.run_id,
            "status": str(result.status),
            "reason": str(result.reason),
            "step": result.steps,
            "last_tool": result.last_tool,
        }
        text = "run %(run_id)s has %(status)s (%(reason)s) at step %(step)s, the last tool was %(last_tool)s"
        logger.info(text, fields, extra=fields)
