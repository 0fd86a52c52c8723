"""Which faults a passing case would have exposed, counted in words: where a run asks for it, and where a case may expose none."""
