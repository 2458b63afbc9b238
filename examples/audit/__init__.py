"""An audit of a Python source tree by agents in several worker processes.

    tree      which files there are, in which packages
    measure   one file: lines, functions, complexity, imports
    messages  what the agents say to each other
    agents    analyser (one per package) → report (one, serial, with state) ← summary
    report    the report's state: sums per package, a count per file
    ranking   from the report to the ranking
    setup     registers the agents in any runtime; worker processes call it too
    plain     the same measures in one process, without agents: the truth to compare with
    outside   how the job reaches the agents: through the server, or in this process
    workers   worker processes: start, kill, stop
    run       the job: publish an event per file, kill a worker on the way, ask for the ranking
    recovery  which worker to kill, and when others have taken over
    check     compares what the agents counted with the plain measures
    show      tables and bars

Run it with `python -m examples.audit`.
"""
