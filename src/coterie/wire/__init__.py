"""What travels: messages as bytes, and the ledger that counts them."""
