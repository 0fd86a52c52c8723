"""What a person asked that cannot be: status 2. Any other exception that reaches the command line is the harness's own failure."""

from __future__ import annotations


class UsageError(ValueError):
    """Something asked for is wrong. The text has the value, the rule and the remedy, on one line."""
