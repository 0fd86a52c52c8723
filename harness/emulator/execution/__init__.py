"""What runs: a CTA, its partitions, barriers and asynchronous operations."""
