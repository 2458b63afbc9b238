"""Stagebell: a runtime for message-driven multi-agent systems."""

from stagebell.runtime.engine.options import agent_options
from stagebell.runtime.local.runtime import LocalRuntime

__all__ = ["LocalRuntime", "agent_options"]
