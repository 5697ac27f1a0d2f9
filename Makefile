# Everything runs in .venv, which is made anew only when pyproject.toml or constraints.txt have changed.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

# Neither asks PyPI whether there is a newer pyright nor takes another one than constraints.txt says.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYRIGHT_PYTHON_FORCE_VERSION PYRIGHT_PYTHON_PYLANCE_VERSION

.DEFAULT_GOAL := help
.PHONY: help demo test check format redis-server bench bench-quick bench-core bench-time bench-cluster chaos soak

help: ## what there is to run
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/package ## see firetime work; needs nothing but Python
	$(BIN)/firetime demo

test: $(VENV)/test redis-server check ## all checks and all tests, against four servers, sentinels and a cluster; ON=cluster: all on that
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(if $(ON),--on $(ON))

check: $(VENV)/test ## format, lint, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

format: $(VENV)/test ## put the code into its form
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/package $(VENV)-bench/installed ## everything beside its peers: docs/benchmarks/results.md
	$(BIN)/python -m bench --growth $(BENCH)

bench-quick: $(VENV)/package $(VENV)-bench/installed ## the same in under 2 minutes, beside the fastest peers
	$(BIN)/python -m bench --quick $(BENCH)

bench-core: $(VENV)/package ## the two figures of the engine
	$(BIN)/python -m bench.core $(BENCH)

bench-time: $(VENV)/package ## how late delayed tasks start, leaders killed among them; a backlog's costs
	$(BIN)/python bench/time.py $(BENCH)

chaos: $(VENV)/package ## the worst day and its proof: docs/chaos; CHAOS="--tasks 50000 --faults 100 --minutes 5 --seed 7"
	$(BIN)/python -m chaos $(CHAOS)

soak: $(VENV)/package ## memory under load and failures, for 20 minutes: docs/chaos/soak.md; SOAK="--minutes 5"
	$(BIN)/python -m chaos.soak $(SOAK)

bench-cluster: $(VENV)/test ## what three primaries carry beside one, by the servers' own time
	$(BIN)/python -m bench.cluster $(BENCH)

# The peers need different versions of redis-py: one environment for each.
$(VENV)-bench/installed: bench/install.py $(wildcard bench/constraints/*.txt)
	$(PYTHON) -m bench.install $(VENV)-bench
	@touch $@

$(VENV)/package: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "firetime needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/test: $(VENV)/package
	$(PIP) --editable '.[test]'
	@touch $@

# Debian's package would start a service: RUNLEVEL=1 keeps SysV init from that; systemd, which does not look at it, stops
# what it has started.
redis-server:
	@test -n "$$FIRETIME_TEST_REDIS70" || test -x /usr/bin/redis-server || { \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "The tests need Redis 7.0: as root, apt-get install redis-server (Debian 12)," \
	         "or name a 7.0 binary in FIRETIME_TEST_REDIS70" >&2; exit 1; fi; \
	  set -ex; export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	  apt-get update --quiet --quiet; \
	  apt-get install --quiet --quiet --yes --no-install-recommends redis-server; \
	  if [ -d /run/systemd/system ]; then systemctl disable --now redis-server; fi; }
