"""Programs that show Stagebell at work; each runs without a key and without a network."""
