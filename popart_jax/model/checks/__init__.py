"""Checks of a model before anything is computed."""
