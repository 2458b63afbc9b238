"""Stagebell: a runtime for message-driven multi-agent systems."""

from stagebell import errors
from stagebell.errors import StagebellError
from stagebell.runtime.engine.immediate import immediate
from stagebell.runtime.engine.options import agent_options
from stagebell.runtime.local.runtime import LocalRuntime
from stagebell.runtime.redis.publisher import Publisher
from stagebell.runtime.redis.runtime import RedisRuntime

__all__ = [
    "LocalRuntime",
    "Publisher",
    "RedisRuntime",
    "StagebellError",
    "agent_options",
    "errors",
    "immediate",
]
