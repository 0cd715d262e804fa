"""API keys of applications: who may ask what, and how often."""
