"""Registers the agents of the audit; the same for worker processes and for one process."""

from __future__ import annotations

from autogen_core import AgentRuntime

from examples.audit.agents import AnalyserAgent, ReportAgent, SummaryAgent


async def setup(runtime: AgentRuntime) -> None:
    """Registers the three agent types and the analysers' subscription."""
    await AnalyserAgent.register(runtime, "analyser", AnalyserAgent)
    await ReportAgent.register(runtime, "report", ReportAgent)
    await SummaryAgent.register(runtime, "summary", SummaryAgent)
