"""Runs an algorithm for all clients at once: plan, compiled round, reference loop, store, checkpoint."""
