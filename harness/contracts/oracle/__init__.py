"""What is expected: the lowering plan and its words, derived bounds, what a target supports."""
