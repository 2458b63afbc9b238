"""How messages travel: the engine, and the two runtimes on it."""
