"""Processes that run what is not trusted: how they are started, what they may do, and what ends with them."""
