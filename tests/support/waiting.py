"""Waiting in tests: for a condition, with a limit; as the contract does it."""

from __future__ import annotations

from stagebell.testing.contract.waiting import eventually, turns_of_the_loop

__all__ = ["eventually", "turns_of_the_loop"]
