"""Where the state of conversations is kept when the runtime does not keep it: one port, and what implements it."""
