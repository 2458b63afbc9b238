"""Names of messages, turns, calls and outputs.

    message id   what the caller gave, else 32 hex digits (a version 4 UUID)
    turn id      24 hex digits of (message id, agent): one message may reach several agents
    call id      <turn id>.<k>     call k of a turn, k = branch.number
    output id    <turn id>.<i>o    output i of a turn

An agent is its text form, ``type/key``. The hashes are part of the wire format: changing one strands every
message that is under way.
"""

from __future__ import annotations

from hashlib import blake2b
from os import urandom

TURN_ID_BYTES = 12


def new_message_id() -> str:
    """Return a fresh message id: the 32 hex digits of a random (version 4) UUID."""
    # uuid.uuid4().hex gives the same at twice the cost; this runs for every message.
    bits = bytearray(urandom(16))
    bits[6] = bits[6] & 0x0F | 0x40
    bits[8] = bits[8] & 0x3F | 0x80
    return bits.hex()


def turn_id(message_id: str, agent: str) -> str:
    """Return the id of the turn in which `agent` handles the message.

    Args:
        message_id: id of the message.
        agent: the recipient as ``type/key``.

    Returns:
        24 hex digits; the same for the same two arguments on every machine.
    """
    return blake2b(f"{message_id}\0{agent}".encode(), digest_size=TURN_ID_BYTES).hexdigest()


def call_id(turn: str, k: str) -> str:
    """Return the message id of call `k` (``branch.number``) of a turn."""
    return f"{turn}.{k}"


def output_id(turn: str, i: int) -> str:
    """Return the message id of output `i` (from 0) of a turn."""
    return f"{turn}.{i}o"


def partition_of(agent: str, partitions: int) -> int:
    """Return the partition of an agent, 0 to `partitions` - 1.

    Args:
        agent: the agent as ``type/key``.
        partitions: how many partitions its type has, at least 1.
    """
    return int.from_bytes(blake2b(agent.encode(), digest_size=8).digest(), "big") % partitions
