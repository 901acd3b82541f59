# Everything a developer types. Each target sets up what it needs; the second time that costs nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
RUNTIME := $(VENV)/.runtime
SETUP := $(VENV)/.ready
SPARK := $(VENV)/.spark
OVERLAY := build/compiled
COMPILED := $(OVERLAY)/.ready

# Directories too: deleting a module changes nothing else.
SOURCES := $(shell find src -name '*.py' -o -path '*/static/*' -type f -o -type d ! -name __pycache__ ! -name '*.egg-info')
CODE := setup.py $(wildcard src tests scripts benchmarks examples)
SOAK_TESTS := $(wildcard tests/fuzz tests/crash tests/attack tests/client/test_faults.py tests/failover)
# No test of these starts a process or waits for a clock.
QUICK_TESTS := tests/wire tests/broker/sql tests/broker/admin tests/broker/produce tests/test_docs.py tests/test_layout.py tests/test_journey.py
RUN ?= up --hello
# Arguments for one run: make run ARGS='--data /var/lib/cometmq'
ARGS ?=

.PHONY: wheels console-shots setup run test verify quick lint written compat bench soak mission clean docs demo gate
.DEFAULT_GOAL := test

setup: $(SETUP)

# What a server needs, and what compiles it: a first `make run` waits for nothing else.
# Interpreted and editable: tracebacks and debuggers see the source, an edit is live at once.
BUILD_NEEDS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
$(RUNTIME): pyproject.toml setup.py
	@test -x $(PY) || { echo "setting up $(VENV)" >&2; $(PYTHON) -m venv $(VENV); }
	@$(PY) -c '$(BUILD_NEEDS)' >$(VENV)/build-needs.txt
	@$(PY) -m pip install --quiet --no-compile --requirement $(VENV)/build-needs.txt
	@COMETMQ_COMPILE=0 $(PY) -m pip install --quiet --no-compile --no-build-isolation --editable '.[console]'
	@touch $@

# And what tests, checks and documents it.
$(SETUP): $(RUNTIME)
	@$(PY) -m pip install --quiet --upgrade pip
	@COMETMQ_COMPILE=0 $(PY) -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@

# Spark is large and only its tests and the type check need it.
$(SPARK): $(SETUP)
	@COMETMQ_COMPILE=0 $(PY) -m pip install --quiet --no-build-isolation --editable '.[dev,spark,lake,spark-jre]'
	@touch $@

# The compiled build lies beside the source, never in it: docs/decisions/0002-compiled-overlay.md
# Plain files are copied anew each time, so that a deleted module does not live on; extensions are kept
# for an incremental build unless setup.py, and with it the list of hot modules, changed. compileall writes bytecode even
# where PYTHONDONTWRITEBYTECODE is set; setuptools would only warn that it does not. mypyc has a cache of its own: the
# type check may run beside it, and two that write one cache have ended in an internal error.
$(COMPILED): $(RUNTIME) $(SOURCES) setup.py
	@echo "compiling the hot modules: about a minute, once (COMETMQ_COMPILE=0 make run does without)" >&2
	@mkdir -p $(OVERLAY)
	@if [ setup.py -nt $@ ]; then find $(OVERLAY) -name '*.so' -delete; fi
	@find $(OVERLAY) -name '*.py' -delete
	@MYPY_CACHE_DIR=build/mypy_cache PYTHONDONTWRITEBYTECODE= $(PY) setup.py --quiet build --build-lib $(OVERLAY) --build-temp build/temp
	@$(PY) -m compileall -q $(OVERLAY)  # as an installed package is: half of a start would be the parser's
	@touch $@

ifeq ($(COMETMQ_COMPILE),0)
run: $(RUNTIME)
	@$(VENV)/bin/cometmq $(RUN) $(ARGS)
else
run: $(COMPILED)
	@PYTHONPATH=$(OVERLAY) $(VENV)/bin/cometmq $(RUN) $(ARGS)
endif

# Orders to a queue, a lake, a chart and back: an embedded cluster and a local Spark, nothing else. Ends with the page.
demo: $(COMPILED) $(SPARK)
	@mkdir -p build/demo
	@PYTHONPATH=$(OVERLAY) $(PY) examples/orders_story.py --folder build/demo $(ARGS)

# The whole system once, real parts included. Each pass writes its section of the mission record.
test verify: export COMETMQ_MISSION_RECORD := build/mission.json
test: $(SPARK)
	@$(MAKE) --no-print-directory --jobs=2 lint $(COMPILED)
	@rm -f $(COMETMQ_MISSION_RECORD)
	$(PY) scripts/check.py test

# What repeats it at length: the compiled build.
verify: $(COMPILED) $(SETUP)
	$(PY) scripts/check.py verify

# Lint, types and the fast tests.
quick: $(SPARK)
	@$(VENV)/bin/ruff check --quiet $(CODE)
	@$(VENV)/bin/mypy --strict $(CODE)
	$(PY) -m pytest -q $(QUICK_TESTS)

lint: $(SPARK)
	@$(VENV)/bin/ruff check --quiet $(CODE)
	@$(VENV)/bin/mypy --strict $(CODE)

# What scripts write from the source of the client: run it after changing a public signature or docstring.
written: $(SETUP)
	@$(PY) scripts/sync_twin.py
	@$(PY) scripts/api_reference.py

compat: $(SETUP)
	$(PY) -m pytest tests/compat

bench: $(COMPILED)
	$(PY) -m benchmarks.versus_java $(ARGS)

# Fails when a hot path of the broker costs more than was recorded; benchmarks/gate.py says how to record anew.
gate: $(COMPILED)
	PYTHONPATH=$(OVERLAY) $(PY) -m benchmarks.gate $(ARGS)
	$(PY) -m benchmarks.gate $(ARGS)

# The long form of the random tests; COMETMQ_LENGTH says how much they do.
soak: $(SETUP)
	@test -n "$(SOAK_TESTS)" || { echo "there are no soak tests in this version"; exit 1; }
	COMETMQ_LENGTH=soak $(PY) -m pytest -q $(SOAK_TESTS)

# A picture of each page of the console, in light and dark, for docs/console.md.
console-shots: $(SETUP)
	$(PY) -m scripts.console_shots $(ARGS)

# Wheels to hand on, each tried in a fresh environment without a compiler.
wheels: $(SETUP)
	@$(PY) scripts/wheels.py

# The pages of docs/ as a site in build/site.
docs: $(SETUP)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet && echo "built build/site/index.html"

mission: $(SETUP)
	@$(PY) scripts/mission.py

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests scripts -name __pycache__ -prune -exec rm -rf {} +
