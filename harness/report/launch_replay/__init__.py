"""Launches of the emulated GPU run again on a real one, from the same bytes, and every byte compared."""
