"""Tuning: choosing thresholds from recorded traffic and feedback; every change is explained, guarded, undone on demand."""
