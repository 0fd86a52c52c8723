"""One call against another that must give the same words: repeated, elsewhere in memory, of fewer rows, under another order."""
