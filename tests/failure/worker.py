"""A worker process of these tests: `python -m tests.failure.worker URL NAMESPACE SETUP,SETUP [NAME=NUMBER…]`.

Says "ready" on its standard output when it takes messages. Ends in order on SIGTERM, and when its standard input
ends, so none outlives the tests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from stagebell import RedisRuntime
from tests.failure.setups import SETUPS


async def main(url: str, namespace: str, setups: str, *options: str) -> None:
    given = dict(option.split("=") for option in options)
    runtime = RedisRuntime(
        None if url == "-" else url,
        namespace=namespace,
        **{name: json.loads(value) for name, value in given.items()},
    )
    for name in filter(None, setups.split(",")):
        await SETUPS[name](runtime)
    await runtime.start()
    print("ready", flush=True)
    await told_to_stop()
    await runtime.close()


async def told_to_stop() -> None:
    """Wait for SIGTERM, or the end of the standard input, on which nothing ever comes."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin, stop.set)
    await stop.wait()
    loop.remove_reader(sys.stdin)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
