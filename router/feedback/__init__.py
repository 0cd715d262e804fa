"""What is known of answers' quality: explicit feedback, implicit signals, shadow pairs and their judges."""
