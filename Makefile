# Every command of the project. Plain `python3` (3.11 or newer) is all that has to be there.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check install -qq
READY  := $(VENV)/ready
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test simulate torture check format bench peer wheel clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo '  ARGS="…" is handed on to demo, test, simulate, torture, bench and peer; PYTHON= chooses the interpreter.'

demo: $(READY)/run ## the main job: audit a source tree with worker processes, one of them killed
	$(PY) -m examples.audit $(ARGS)

test: $(READY)/dev ## all tests
	$(PY) -m tests.run $(ARGS)

simulate: $(READY)/dev ## workers on a virtual clock: other crashes, pauses and lost replies each time, 90 seconds a server
	$(PY) -m tests.simulation --seconds 90 $(ARGS)

torture: $(READY)/dev ## the long runs that `make test` leaves out: thousands of simulated schedules, kills and bad lines
	$(PY) -m pytest tests -m torture -q $(ARGS)

check: $(READY)/dev ## format, lint, arrows between packages, types (mypy and pyright, strict)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(PY) -m mypy
	$(PY) -m pyright

format: $(READY)/dev ## rewrite the sources as `make check` wants them
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(READY)/bench ## our runtimes beside AutoGen's, as ratios measured in one run
	$(PY) -m benchmarks $(ARGS)

peer: $(READY)/run ## AutoGen's own published tests against our runtimes
	$(PY) -m tests.peer.run $(ARGS)

wheel: $(READY)/dev ## build the wheel, install it elsewhere and test what was installed
	$(PY) -m tests.shipped.run

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The environment grows on need: `make demo` installs no test tools. Each stamp is renewed when pyproject.toml changes.
$(PY):
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("stagebell needs Python 3.11 or newer: make PYTHON=/path/to/python3")'
	@echo 'making the environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV) || { echo 'python3 cannot make environments; on Debian: apt-get install python3-venv'; rm -rf $(VENV); exit 1; }

$(READY)/run: pyproject.toml | $(PY)
	@echo 'installing stagebell'
	@$(PIP) -e .
	@mkdir -p $(READY) && touch $@

$(READY)/dev: pyproject.toml $(READY)/run
	@echo 'installing the tools of the checks and the tests'
	@$(PIP) -e '.[dev]'
	@touch $@

$(READY)/bench: pyproject.toml $(READY)/run
	@echo 'installing the peers of the benchmarks'
	@$(PIP) -e '.[bench]'
	@touch $@
