"""What the server itself shows of a namespace: who owns what, what is stored, and what was left behind."""

from __future__ import annotations

import json
from typing import Any

import redis

from stagebell.runtime.redis.keys import lifetime

# At rest none of these may be left: attempts, holds, journals, savepoints.
_OF_OPEN_TURNS = ("run", "hold", "j", "sp")

_BACKLOG = """
local total = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if string.sub(key, -3) == ':in' or string.sub(key, -8) == '}:events' then total = total + redis.call('XLEN', key) end
end
return total
"""


_TIMERS = """
local total = 0
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  if string.sub(key, -4) == ':due' then total = total + redis.call('ZCARD', key) end
end
return total
"""


class View:
    """A namespace, read with a client of its own."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self.client: Any = client
        self.namespace = namespace

    def worker_of(self, pid: int) -> str:
        """The name under which the process with this number works."""
        for key in self.client.scan_iter(match=f"sb:{{{self.namespace}}}:worker:*", count=1000):
            if self.client.hget(key, "pid") == str(pid).encode():
                return str(key.decode().rpartition(":")[2])
        return ""

    def _keys(self, pattern: str) -> list[str]:
        return sorted({key.decode() for key in self.client.scan_iter(match=pattern, count=5000)})

    def owners(self) -> dict[str, str]:
        """The owner of each partition, "" for none; without the inboxes of processes."""
        keys = self._keys(f"sb:{{{self.namespace}*own")
        keys = [key for key in keys if f"{{{self.namespace}:w:" not in key]
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.hget(key, "owner")
        return {key: (owner or b"").decode() for key, owner in zip(keys, pipe.execute(), strict=True)}

    def owned_by(self, worker: str) -> set[str]:
        """The partitions that a worker owns."""
        return {key for key, owner in self.owners().items() if owner == worker}

    def backlog(self) -> int:
        """How many messages wait in the inboxes of the namespace, at one moment.

        One step: while keys are listed one after the other, a message moves to an inbox that was not there before.
        """
        return int(self.client.eval(_BACKLOG, 0, f"sb:{{{self.namespace}*"))

    def timers(self) -> int:
        """How many timers are set."""
        return int(self.client.eval(_TIMERS, 0, f"sb:{{{self.namespace}*"))

    def begun(self) -> int:
        """How many turns were started and have not ended."""
        return sum(self.client.hlen(key) for key in self._keys(f"sb:{{{self.namespace}:*}}:run"))

    def states(self, agent_type: str) -> dict[str, dict[str, Any]]:
        """The stored state of each agent of a type, by its key."""
        found: dict[str, dict[str, Any]] = {}
        for key in self._keys(f"sb:{{{self.namespace}:{agent_type}:*}}:s:*"):
            data = self.client.hget(key, "d")
            found[key.partition("}:s:")[2]] = json.loads(data)["state"] if data else {}
        return found

    def state(self, agent_type: str, key: str) -> dict[str, Any]:
        """The stored state of one agent, {} when there is none."""
        return self.states(agent_type).get(key, {})

    def dead_letters(self) -> list[dict[str, str]]:
        """All dead letters of the namespace."""
        found: list[dict[str, str]] = []
        for key in self._keys(f"sb:{{{self.namespace}*dlq"):
            for _, fields in self.client.xrange(key):
                found.append({k.decode(): v.decode("utf-8", "replace") for k, v in fields.items()})
        return found

    def worker_of_client(self, key: str) -> bool:
        """True when the client of a key hosts agents."""
        client = key.partition("}")[0].rpartition(":")[2]
        return bool(self.client.exists(f"sb:{{{self.namespace}}}:worker:{client}"))

    def keys(self, end: str) -> list[str]:
        """All keys of the namespace with this end."""
        return self._keys(f"sb:{{{self.namespace}*{end}")

    def left_behind(self) -> list[str]:
        """Keys of open turns, and streams that say which are to be ended; at rest there must be none."""
        tagged = self._keys(f"sb:{{{self.namespace}*")
        open_turns = [key for key in tagged if key.partition("}:")[2].split(":")[0] in _OF_OPEN_TURNS]
        return open_turns + [key for key in self.keys("}:ctl") if self.client.xlen(key)]

    def against_the_list(self) -> list[str]:
        """Keys that have no stated lifetime, another type than stated, or no expiry where one is stated."""
        wrong: list[str] = []
        for key in self._keys(f"sb:{{{self.namespace}*"):
            rule, kind, ttl = lifetime(key), self.client.type(key).decode(), self.client.pttl(key)
            if kind == "none":
                continue
            if rule is None or kind != rule.kind or (rule.expires and ttl < 0):
                wrong.append(f"{key} ({kind}, ttl {ttl})")
        return wrong
