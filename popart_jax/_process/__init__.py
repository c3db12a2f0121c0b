"""What this package does to the process it is in: memory, garbage collection, random state, imports."""
