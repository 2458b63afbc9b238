"""A worker process of these tests: `python -m tests.failure.worker URL NAMESPACE SETUP,SETUP [NAME=NUMBER…]`.

Says "ready" on its standard output when it takes messages. Ends in order when its standard input ends, so
none outlives the tests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys

from stagebell import RedisRuntime
from tests.failure.agents import SETUPS


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
    await asyncio.to_thread(sys.stdin.read)
    await runtime.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(process)d %(name)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
