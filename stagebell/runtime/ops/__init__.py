"""Running Stagebell: the command line, worker processes and their supervisor, and a look at a namespace."""
