"""The same in a process that may die: pool, standby workers, journal, GPU leases."""
