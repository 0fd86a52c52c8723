"""Approximate instructions of a GPU's special-function unit, bit for bit: tables of quadratics in fixed point."""
