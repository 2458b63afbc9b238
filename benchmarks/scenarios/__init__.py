"""What every contender runs: the same messages, the same agent classes."""
