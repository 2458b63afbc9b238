"""The runtime of one process, in memory."""
