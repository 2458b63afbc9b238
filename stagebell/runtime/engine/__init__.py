"""One engine for both runtimes: hosts agents, keeps their mailboxes, runs their turns."""
