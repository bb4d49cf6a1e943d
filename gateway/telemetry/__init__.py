"""What the outside sees of a replica. Never a prompt, never a key."""
