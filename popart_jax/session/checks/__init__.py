"""Checks that a session makes before it compiles, with PopART's error texts."""
