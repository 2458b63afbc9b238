"""The three agents. They know AutoGen's protocol only, so they run on any of its runtimes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from autogen_core import AgentId, MessageContext, RoutedAgent, event, rpc, type_subscription

from examples.audit.measure import FileReport, measure
from examples.audit.messages import (
    Counted,
    File,
    FileMeasured,
    Progress,
    ProgressRequest,
    Ranking,
    RankingRequest,
    ReportRequest,
)
from examples.audit.ranking import ranking
from examples.audit.report import Report

FILE_TOPIC = "audit.file"
REPORT = AgentId("report", "all")
SUMMARY = AgentId("summary", "all")

# Measuring is work for the processor: a second thread would only fight for the interpreter's lock,
# and none at all would keep the worker from its messages meanwhile.
_measuring = ThreadPoolExecutor(max_workers=1, thread_name_prefix="measuring")


@type_subscription(FILE_TOPIC)
class AnalyserAgent(RoutedAgent):
    """Measures the files of one package, one after the other; its key is the package."""

    def __init__(self) -> None:
        super().__init__("Measures the files of one package.")
        self._count = 0

    @event
    async def on_file(self, message: File, ctx: MessageContext) -> None:
        """Measures a file and tells the report."""
        report = await asyncio.get_running_loop().run_in_executor(_measuring, _measure, message.path)
        self._count += 1
        measured = FileMeasured(
            package=message.package,
            number=message.number,
            report=report,
            worker=os.getpid(),
            analyser_count=self._count,
        )
        await self.send_message(measured, REPORT, cancellation_token=ctx.cancellation_token)

    async def save_state(self) -> Mapping[str, Any]:
        """The number of files measured: it follows the agent to another worker."""
        return {"count": self._count}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on counting where another worker stopped."""
        self._count = int(state["count"])


class ReportAgent(RoutedAgent):
    """Counts what the analysers measured. There is one, and it handles one message at a time."""

    def __init__(self) -> None:
        super().__init__("Counts what the analysers measured.")
        self._report = Report()

    @rpc
    async def on_measured(self, message: FileMeasured, ctx: MessageContext) -> Counted:
        """Counts a file."""
        return Counted(times=self._report.add(message))

    @rpc
    async def on_progress(self, message: ProgressRequest, ctx: MessageContext) -> Progress:
        """Says how far it is."""
        return self._report.progress()

    @rpc
    async def on_report(self, message: ReportRequest, ctx: MessageContext) -> Report:
        """Gives everything that was counted."""
        return self._report

    async def save_state(self) -> Mapping[str, Any]:
        """The whole report."""
        return self._report.model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on counting where another worker stopped."""
        self._report = Report.model_validate(state)


class SummaryAgent(RoutedAgent):
    """Answers with the ranking, from what the report says at that moment."""

    def __init__(self) -> None:
        super().__init__("Ranks the packages.")

    @rpc
    async def on_ranking(self, message: RankingRequest, ctx: MessageContext) -> Ranking:
        """Asks the report and ranks the packages."""
        report = await self.send_message(ReportRequest(), REPORT, cancellation_token=ctx.cancellation_token)
        return ranking(report, message.top)


def _measure(path: str) -> FileReport:
    return measure(Path(path).read_bytes(), path)
