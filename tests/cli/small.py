"""The smallest run that has everything; always the same, so that it compiles once."""

DATA = "demo:users=60,items=360,interactions_per_user=14"
SMALL = ("--data", DATA, "--set", "embedding_dim=4", "--set", "lr=1", "--set", "item_lr=100")
