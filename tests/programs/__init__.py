"""Whole programs, as users write them."""
