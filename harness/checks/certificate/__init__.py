"""What a passing case could have told apart, counted in words: computed where a run asks, and where a case may tell nothing."""
