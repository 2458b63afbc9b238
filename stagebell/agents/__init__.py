"""The typed agent loop: observe, decide, act, as a state machine over messages."""
