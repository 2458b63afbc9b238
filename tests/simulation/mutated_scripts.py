"""A pytest plugin: the tests run with scripts that one mutation has broken (`-p tests.simulation.mutated_scripts`).

STAGEBELL_MUTANT names the mutation. Loaded before the package reads its scripts.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from stagebell.runtime.redis.lua_files import SCRIPTS, SOURCES
from tests.simulation.mutations import sources

for name, source in sources(os.environ["STAGEBELL_MUTANT"]).items():
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    SCRIPTS[name] = replace(SCRIPTS[name], source=source, sha=sha)
    SOURCES[sha] = source
