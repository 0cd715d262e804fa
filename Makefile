# Two commands: `make run` starts Bitgear, `make test` checks it. Both make the virtual environment first.
# Another interpreter: make PYTHON=python3.12 run. Another engine: make ENGINE=cpu|gpu run.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Processes of the fast tests: they wait a good deal, so one more than two cores.
JOBS ?= 3

# Hundreds of processes start in the tests: each would compile every module anew.
export PYTHONDONTWRITEBYTECODE =

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# What a stamp depends on: the declared dependencies, and the interpreter's and engine's choice.
STAMPS := $(VENV)/.stamps
HAS_GPU := $(shell nvidia-smi -L >/dev/null 2>&1 && echo yes)
ENGINE ?= $(if $(HAS_GPU),gpu,cpu)

.DEFAULT_GOAL := help
.PHONY: help run run-simulated test test-fast test-slow lint bench config clean

help: ## These lines
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-20s %s\n' "$$name" "$$text"; done

run: $(STAMPS)/engine-$(ENGINE) ## Install with the engine for this machine (GPU or CPU), start everything
	$(BIN)/bitgear up $(ARGS)

run-simulated: $(STAMPS)/light ## Install without an engine, start with simulated variants (seconds)
	$(BIN)/bitgear up --simulate $(ARGS)

test: $(STAMPS)/full-$(ENGINE) ## Everything: lint, types, fast tests, then real vLLM and soak tests
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory test-fast
	$(BIN)/python -m pytest -q -m "vllm or soak" $(ARGS)

test-fast: $(STAMPS)/dev ## Tests that need no engine
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not vllm and not soak" $(ARGS)

lint: $(STAMPS)/dev ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy --strict

bench: $(STAMPS)/dev ## What the proxy costs (more in benchmarks/README.md)
	$(BIN)/python benchmarks/proxy.py $(if $(ARGS),$(ARGS),--quick)

config: $(STAMPS)/light ## Write config/default.yaml anew from the schema
	env -i $(BIN)/bitgear config show --commented > config/default.yaml.new
	mv config/default.yaml.new config/default.yaml

clean: ## Remove the environment and caches (checkpoints in ~/.bitgear stay)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment, only with an interpreter that is new enough and has venv.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "make: there is no $(PYTHON); install Python 3.11 or newer, or name one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1); Bitgear needs 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) has no venv (on Debian: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/light: pyproject.toml | $(BIN)/python
	@echo "Installing Bitgear (a minute)"
	$(PIP) install -e .
	@mkdir -p $(@D) && touch $@

$(STAMPS)/dev: pyproject.toml | $(BIN)/python
	@echo "Installing Bitgear and what its tests need (two minutes)"
	$(PIP) install -e '.[dev,hosted]'
	@mkdir -p $(@D) && touch $@

$(STAMPS)/engine-%: pyproject.toml | $(BIN)/python
	@echo "Installing Bitgear with vLLM for $* (some minutes, gigabytes)"
	$(PIP) install -e '.[$*]'
	$(TAKE_MISFITS_OUT)
	@mkdir -p $(@D) && touch $@ $(STAMPS)/light

# One resolution for all: what the tests need may not move what the engine needs.
$(STAMPS)/full-%: pyproject.toml | $(BIN)/python
	@echo "Installing Bitgear with vLLM for $* and what its tests need (some minutes, gigabytes)"
	$(PIP) install -e '.[dev,hosted,$*]'
	$(TAKE_MISFITS_OUT)
	@mkdir -p $(@D) && touch $@ $(STAMPS)/light $(STAMPS)/dev $(STAMPS)/engine-$*

# The CPU build of torch does not load the index's torchvision and its kin, and transformers imports them when they are
# there: what does not import is taken out again.
define TAKE_MISFITS_OUT
	@for name in torchvision torchaudio torchcodec; do \
		if $(PIP) show -q $$name >/dev/null 2>&1 && ! $(BIN)/python -c "import $$name" >/dev/null 2>&1; then \
			echo "$$name does not load beside this torch: removing it"; $(PIP) uninstall -q -y $$name; \
		fi; \
	done
endef
