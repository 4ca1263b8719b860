"""Local differential privacy: what a client does to its upload before it leaves, and what that is worth."""
