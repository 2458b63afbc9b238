"""How the property tests of this folder run: no limit per example, machines in CI are slow now and then."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("messages", deadline=None, max_examples=60)
settings.load_profile("messages")
