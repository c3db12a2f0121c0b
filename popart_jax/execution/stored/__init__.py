"""Compiled programs in files: their names, their seal, and cache folders."""
