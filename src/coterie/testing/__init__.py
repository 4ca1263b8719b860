"""What every algorithm must pass, on toy data where the right answer is known."""
