"""From settings to a run directory, and from run directories to tables."""
