"""A run as a page that one attaches, and the pictures in it."""
