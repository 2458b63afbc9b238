"""What keeps this worker's leases: it renews them and beats, over a connection of its own.

That is done by a thread, so that a busy event loop does not lose its partitions. But a heartbeat says that this worker
can run its agents: it stops, and others take over, when the event loop has made no progress for `max_stall`, or when
the connection over which turns read and commit has been away for longer than a lease.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import redis

from stagebell.runtime.redis.address import Address
from stagebell.runtime.redis.keys import LeasedKeys, NamespaceKeys
from stagebell.runtime.redis.lua_files import SCRIPTS
from stagebell.runtime.redis.settings import RedisSettings

logger = logging.getLogger("stagebell")

_EXPIRES_MS = 15_000

# redis-py leaves the types of its options and answers open.
_REDIS: Any = redis.Redis


def _client(address: Address, timeout: float) -> Any:
    # Not from the URL: a URL that cannot be understood would be repeated in the error, with its password.
    place = {"unix_socket_path": address.path} if address.path else {"host": address.host, "port": address.port}
    tls = {"ssl": True, **address.tls} if address.tls is not None else {}
    return _REDIS(
        **place,
        **tls,
        username=address.username,
        password=address.password,
        db=address.db,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
    )


class LeaseKeeper(ABC):
    """Renews the leases it was given; `on_lost` hears, in the event loop, of those that are another's (tag, token)."""

    def __init__(
        self, url: str, namespace: str, worker: str, settings: RedisSettings, on_lost: Callable[[str, str], None]
    ) -> None:
        self._client = self.connect(Address.parse(url), max(settings.lease / 3, 0.5))
        self._keys = NamespaceKeys(namespace)
        self._worker = worker
        self._settings = settings
        self._on_lost = on_lost
        self._leases: dict[str, tuple[LeasedKeys, str]] = {}
        self._described: dict[str, str] = {}
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._progress = time.monotonic()
        self._gave_up = ""
        self._held = False
        self._silent = False
        self._leaves_rest = False
        self.cut_off_for: Callable[[], float] = lambda: 0.0

    def connect(self, address: Address, timeout: float) -> Any:
        """A synchronous client of the server, for whoever calls `beat`; `timeout` in seconds."""
        return _client(address, timeout)

    @abstractmethod
    def start(self, described: dict[str, str]) -> None:
        """Start to beat, saying `described` of this worker."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop, and take this worker out of the heartbeats."""

    def describe(self, described: dict[str, str]) -> None:
        """Say this of the worker from now on."""
        with self._lock:
            self._described = described
        self.hurry()

    @abstractmethod
    def hurry(self) -> None:
        """Beat at once."""

    def add(self, keys: LeasedKeys, token: str) -> None:
        """Renew this lease from now on."""
        with self._lock:
            self._leases[keys.tag] = keys, token

    def remove(self, keys: LeasedKeys) -> None:
        """Renew this lease no more."""
        with self._lock:
            self._leases.pop(keys.tag, None)

    def hold(self) -> None:
        """Let no further beat begin until `go_on`."""
        self._held = True

    def go_on(self) -> None:
        """End a `hold`: beat at once, and hear whose the leases are now."""
        self._held = False
        self.hurry()

    def fall_silent(self) -> None:
        """Let no further beat begin, and no good-bye: leases and heartbeat run out by themselves."""
        self._silent = True

    def beat(self) -> None:
        """Beat and renew; three times in the time of a lease."""
        if self._held or self._silent:
            return
        try:
            self._beat()
        except redis.RedisError as error:
            logger.warning("the leases of worker %s could not be renewed: %s", self._worker, error)

    def _beat(self) -> None:
        self._loop_call(self._note_progress)
        reason = self._cannot_work()
        if reason and not self._gave_up:
            logger.error("%s: worker %s gives up its leases", reason, self._worker)
        self._gave_up = reason
        if reason:
            return
        with self._lock:
            leases, described = list(self._leases.values()), self._described
        self._renew(leases, described)

    def _cannot_work(self) -> str:
        """Why a lease would be held in vain; empty when this worker can run its agents."""
        stall = time.monotonic() - self._progress
        if stall > self._settings.max_stall:
            return f"the event loop has made no progress for {stall:.0f} s (a handler blocks it: await there)"
        cut_off = self.cut_off_for()
        if cut_off > self._settings.lease:
            return f"its turns cannot reach the server, which answers its heartbeats, for {cut_off:.0f} s"
        return ""

    def _renew(self, leases: list[tuple[LeasedKeys, str]], described: dict[str, str]) -> None:
        pipe = self._client.pipeline(transaction=False)
        words = [part for pair in described.items() for part in pair]
        own = self._keys.worker(self._worker)
        pipe.eval(SCRIPTS["beat"].source, 2, self._keys.workers, own, self._worker, str(_EXPIRES_MS), "", *words)
        for keys, token in leases:
            pipe.eval(SCRIPTS["renew"].source, 1, keys.own, token, str(self._settings.lease_ms), "")
        beat, *renewals = pipe.execute(raise_on_error=False)
        if isinstance(beat, Exception):
            logger.warning("the heartbeat of worker %s is refused: %s", self._worker, beat)
        self._judge(leases, renewals)

    def _judge(self, leases: list[tuple[LeasedKeys, str]], renewals: list[Any]) -> None:
        """Each answer by itself: an error says nothing about the other leases."""
        errors: list[Exception] = []
        for (keys, token), renewed in zip(leases, renewals, strict=True):
            if isinstance(renewed, Exception):
                errors.append(renewed)
            elif not renewed:
                self._loop_call(self._on_lost, keys.tag, token)
        if errors:
            text = "%d leases of worker %s could not be renewed: %s"
            logger.warning(text, len(errors), self._worker, errors[0])

    def leave_the_rest(self) -> None:
        """Let the good-bye say that others have to clean up after this worker, at once."""
        self._leaves_rest = True

    def say_goodbye(self) -> None:
        """Take this worker out of the heartbeats; the end of the client."""
        if self._silent:
            self._client.close()
            return
        try:
            pipe = self._client.pipeline(transaction=False)
            if self._leaves_rest:
                pipe.zadd(self._keys.workers, {self._worker: 0}, xx=True)  # its last beat counts as old
            else:
                pipe.zrem(self._keys.workers, self._worker)
            pipe.delete(self._keys.worker(self._worker))
            pipe.execute()
            self._client.close()
        except redis.RedisError as error:
            logger.debug("worker %s could not sign off: %s", self._worker, error)

    def _note_progress(self) -> None:
        self._progress = time.monotonic()

    def _loop_call(self, call: Callable[..., None], *args: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)


class LeaseThread(LeaseKeeper):
    """The keeper that is a thread of its own."""

    def __init__(
        self, url: str, namespace: str, worker: str, settings: RedisSettings, on_lost: Callable[[str, str], None]
    ) -> None:
        super().__init__(url, namespace, worker, settings, on_lost)
        self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stagebell-lease-{worker}", daemon=True)

    def start(self, described: dict[str, str]) -> None:
        """Start to beat, saying `described` of this worker."""
        self._described = described
        self._thread.start()

    def hurry(self) -> None:
        """Beat at once."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop, and take this worker out of the heartbeats."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 5.0)

    def _run(self) -> None:
        period = self._settings.lease / 3
        while not self._stopped:
            started = time.monotonic()
            self.beat()
            self._wake.wait(max(period - (time.monotonic() - started), 0.05))
            self._wake.clear()
        self.say_goodbye()
