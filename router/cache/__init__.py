"""Answers kept in Redis: which requests may share one, under which key, in which form, and who asks upstream."""
