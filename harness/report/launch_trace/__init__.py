"""A launch on the emulated GPU that can be looked at: tiles by line, accesses by element, layouts, facts, its page."""
