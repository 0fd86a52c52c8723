"""A package of a user's."""

BLOCK_SIZE = 128
