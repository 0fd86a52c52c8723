"""Pages of docs/ that are printed from the code."""
