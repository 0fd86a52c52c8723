"""One case on one target in this process: launch, observe, compare, decide."""
