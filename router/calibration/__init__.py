"""Calibration: prompts sent to a group's own variants, and a classifier made of what came back."""
