"""Measurements of programs in several processes: agreement, recovery from lost processes, prefetching and sharding."""
