"""Answers to the same question in other words: what two texts must have in common, and how alike they are."""
