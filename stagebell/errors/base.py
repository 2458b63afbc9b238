"""The base of all errors of this package."""

from __future__ import annotations


class StagebellError(Exception):
    """Base of all errors of this package."""
