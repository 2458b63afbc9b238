"""Benchmarks: stagebell beside AutoGen's runtimes and the raw floors, in one run, as ratios.

Run `python -m benchmarks` from the project folder; `--help` lists the options.
"""
