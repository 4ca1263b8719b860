"""From a ratings file to clients: interactions, readers, catalogue, splits, clients, synthetic sets."""
