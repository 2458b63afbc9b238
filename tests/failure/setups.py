"""What a worker process can host, by name."""

from __future__ import annotations

from tests.failure.agents import Setup, audit
from tests.failure.charging import till
from tests.failure.desks import desks, reminders
from tests.failure.hopping import passers
from tests.failure.office import office
from tests.failure.runners import runners
from tests.failure.troubles import bound, bound_callee, troubles
from tests.failure.visits import visits

SETUPS: dict[str, Setup] = {
    "office": office,
    "till": till,
    "audit": audit,
    "troubles": troubles,
    "desks": desks,
    "reminders": reminders,
    "bound": bound,
    "bound_callee": bound_callee,
    "visits": visits,
    "runners": runners,
    **{name: passers(name) for name in ("first", "second", "third")},
}
