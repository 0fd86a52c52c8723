"""Deliberate faults of kernels, generated and judged: what share of them their cases would notice."""
