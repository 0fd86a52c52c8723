"""What a torch function holds that has no rule here."""

from __future__ import annotations

from bitverdict.harness.model.usage import UsageError


class NoRule(UsageError):
    """An ATen operator, or a form of one, that has no rule: what holds it has no reference."""
