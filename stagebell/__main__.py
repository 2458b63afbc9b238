"""`python -m stagebell`: the same as the command `stagebell`."""

from stagebell.runtime.ops.cli import main

if __name__ == "__main__":
    main()
