# Everything a developer types. Each target sets up what it needs; the second time that costs nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
SETUP := $(VENV)/.ready
OVERLAY := build/compiled
COMPILED := $(OVERLAY)/.ready

SOURCES := $(shell find src -name '*.py')
CODE := src tests scripts setup.py
# The suites that exercise hot modules; they run a second time against the compiled build.
COMPILED_TESTS := $(wildcard tests/wire tests/net tests/nameserver tests/store)
RUN ?= $(if $(wildcard src/cometmq/cli/up.py),up,nameserver)

.PHONY: setup run test lint compat bench soak mission clean

setup: $(SETUP)

$(SETUP): pyproject.toml setup.py
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --upgrade pip 'setuptools>=77'
	@COMETMQ_COMPILE=0 $(PY) -m pip install --quiet --no-build-isolation --editable '.[dev]'
	@touch $@

run: $(SETUP) $(COMPILED)
	@PYTHONPATH=$(OVERLAY) $(VENV)/bin/cometmq $(RUN)

# The interpreted pass starts a new mission record, the compiled pass adds to it.
test: lint $(COMPILED)
	@rm -f build/mission.json
	COMETMQ_MISSION_RECORD=build/mission.json COMETMQ_MISSION_PASS=interpreted $(PY) -m pytest -q
	COMETMQ_MISSION_RECORD=build/mission.json COMETMQ_MISSION_PASS=compiled PYTHONPATH=$(OVERLAY) \
		$(PY) -m pytest -q $(COMPILED_TESTS)

lint: $(SETUP)
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/mypy $(CODE)

# The compiled build lies beside the source, never in it: docs/decisions/0002-compiled-overlay.md
# Plain files are copied anew each time, so that a deleted module does not live on; extensions are kept
# for an incremental build unless setup.py, and with it the list of hot modules, changed.
$(COMPILED): $(SETUP) $(SOURCES) setup.py
	@mkdir -p $(OVERLAY)
	@if [ setup.py -nt $@ ]; then find $(OVERLAY) -name '*.so' -delete; fi
	@find $(OVERLAY) -name '*.py' -delete
	@$(PY) setup.py --quiet build --build-lib $(OVERLAY) --build-temp build/temp
	@touch $@

compat: $(SETUP)
	$(PY) -m pytest tests/compat

mission: $(SETUP)
	@$(PY) scripts/mission.py

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.egg-info' -prune -exec rm -rf {} +
	find src tests scripts -name __pycache__ -prune -exec rm -rf {} +
