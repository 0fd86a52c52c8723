"""Sums as trees: which elements an output adds up, in which order, and the words that this order gives."""
