"""The order of a launcher's sums on a target, found by launches on operands that show it, and the words that it gives."""
