"""The clock that goes on when the test says so is public; this is its name in older tests."""

from __future__ import annotations

from stagebell.testing import ManualClock as HandClock

__all__ = ["HandClock"]
