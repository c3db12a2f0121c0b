"""Predicts published IPU figures from their configuration, and scores the predictions."""
