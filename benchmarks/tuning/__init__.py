"""Planted truths for the tuning jobs."""
