"""The control plane: one versioned document that all workers follow."""
