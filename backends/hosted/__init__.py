"""A hosted model as a variant: a small OpenAI server of ours that answers through litellm."""
