"""What tests share: a scripted upstream server, a raw client, and vLLM-shaped bytes."""
