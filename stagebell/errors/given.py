"""Errors of what a program was given by its author: settings and objects that cannot be meant."""

from __future__ import annotations

from stagebell.errors.base import StagebellError


class InvalidSetting(StagebellError, ValueError, TypeError):
    """There is no such setting, or it does not take this value; `setting` is its name."""

    def __init__(self, text: str, setting: str) -> None:
        super().__init__(text)
        self.setting = setting


class WrongType(StagebellError, TypeError):
    """An object of another type is due here; the text says which, and how to make it."""
