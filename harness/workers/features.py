"""Imported by the forkserver alone: the optional features that every case asks, which each worker would import in its first one."""

from __future__ import annotations

from bitverdict.harness.model.feature_table import checks, observers

checks()
observers()
