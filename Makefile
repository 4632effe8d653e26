# Two commands: `make demo` shows what knnmt does, `make test` checks all of it. Each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready

.PHONY: demo test lint types layers docs bench results clean

demo: $(READY)
	$(BIN)/knnmt demo

# Tests run in two processes with a thread each, which is what two cores do best; WORKERS=0 runs them in one.
WORKERS ?= 2

test: lint types layers
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/python docs/generate_cli.py

# BENCH: options, such as BENCH="translating --store STORE --source test.de --target test.en"
bench: $(BENCH_READY)
	$(BIN)/python -m bench $(BENCH)

# The paper's experiments, with the commands of docs/results.md; stopped, the same call goes on. OPUS names a
# Chinese-English model. Whole texts and finer curves: make results SIZE= CAPS= FIGURES= MULTILINGUAL= FINETUNING=
CORPORA ?= corpora
RESULTS ?= results
SIZE ?= --sentences 400 --dev-sentences 150
CAPS ?= --caps 1000 100
FIGURES ?= --sentences 100 --k 1,4,16,64 --temperature 10,100 --sizes 0.1,0.3,1 --nprobe 1,4,16 --beam 1,5
MULTILINGUAL ?= --sentences 200 --dev-sentences 60 --pairs 20000 --directions de-en fr-en en-de de-fr \
	--minutes 25 --vocabulary 4000 --training "--dimension 128 --feed-forward 512 --encoder-layers 3 \
	--decoder-layers 2 --processes 1 --accumulate 2"
FINETUNING ?= --sentences 400
RECIPE = $(BIN)/python recipes/paper/$(1).py --output $(RESULTS) --corpora $(CORPORA)

results: $(READY)
	$(call RECIPE,single_pair) $(SIZE)
	$(call RECIPE,domains) $(SIZE)
	$(call RECIPE,downsampling) $(SIZE) $(CAPS)
	$(call RECIPE,figures) $(FIGURES)
	$(call RECIPE,multilingual) $(MULTILINGUAL)
	$(call RECIPE,mixing) $(SIZE)
	$(call RECIPE,finetuning) $(FINETUNING)
	test -z "$(OPUS)" || $(call RECIPE,finetuning) $(FINETUNING) --name opus-mt --model "$(OPUS)" \
		--languages zh en --train it-zh/train --test it-zh/test --foreign none
	test -z "$(OPUS)" || $(call RECIPE,mixing) $(SIZE) --name mixing-opus-zh-en --model "$(OPUS)" \
		--languages zh en --domains it-zh --foreign --pairs 5000
	test -z "$(OPUS)" || $(call RECIPE,domains) $(SIZE) --name opus-mt --model "$(OPUS)" \
		--languages zh en --domains it-zh --general none
	$(BIN)/python recipes/paper/tables.py --output $(RESULTS)

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
