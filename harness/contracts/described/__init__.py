"""The contract of a kernel that its user describes: a body that draws and launches, and a reference against the array API."""
