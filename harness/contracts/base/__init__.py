"""Bases that contracts share."""
