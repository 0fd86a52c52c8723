"""What writes hardware words: the instructions, the rows fed to them, and the machine that runs them."""
