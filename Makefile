# Two commands: `make demo` shows what knnmt does, `make test` checks all of it. Each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready

.PHONY: demo test lint types docs bench results clean

demo: $(READY)
	$(BIN)/knnmt demo

test: lint types
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/generate_cli.py

bench: $(BENCH_READY)
	$(BIN)/python -m bench

# The paper's experiments at small size, in hours; stopped, the same call goes on. OPUS names a Chinese-English model.
CORPORA ?= corpora
RESULTS ?= results
RECIPE = $(BIN)/python recipes/paper/$(1).py --output $(RESULTS)

results: $(READY)
	$(call RECIPE,single_pair) --corpora $(CORPORA)
	$(call RECIPE,domains) --corpora $(CORPORA)
	$(call RECIPE,downsampling) --corpora $(CORPORA)
	$(call RECIPE,figures) --corpora $(CORPORA)
	$(call RECIPE,multilingual) --corpora $(CORPORA)
	test -z "$(OPUS)" || $(call RECIPE,domains) --corpora $(CORPORA) --name opus-mt --model "$(OPUS)" \
		--languages zh en --domains it-zh --general none
	$(call RECIPE,tables)

# torch first and by its pinned version: a CPU build of it that pip can find locally is then taken, and kept.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "knnmt needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# What only the benchmarks compare with, so that `make test` need not install it.
$(BENCH_READY): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
