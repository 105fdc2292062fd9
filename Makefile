# Two commands do everything: `make book` reads the course, `make test` passes its tests.
# `make help` lists the rest. Needs Python 3.11+, make and git.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV   ?= .venv
PORT   ?= 8000
BIN    := $(abspath $(VENV))/bin
JOBS   ?= 2
TESTS  ?= not long
SLOW   := --durations=10 --durations-min=10
# in the order of tests/conftest.py, the longest first, and not by the number of tests
BY_FILE  := --dist loadfile --no-loadscope-reorder
BY_GROUP := --dist loadgroup --no-loadscope-reorder

export PATH := $(BIN):$(PATH)
export VENV := $(abspath $(VENV))
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export PYTHONUNBUFFERED ?= 1
unexport PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help book html html-strict downloads pdf epub zip page slides serve sweep records test nightly lint types unit sets grading notebooks exercises exercises-check site browser system hub setup lock wheel clean translation language-model

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup: ## create .venv and install the locked packages
	@[ -n "$(PYTHON)" ] || { echo "setup: error: Python 3.11 or newer is needed: install it, or name it with 'make PYTHON=/path/to/python3 ...'" >&2; exit 1; }
	@$(PYTHON) tools/setup.py

book: html serve ## build the book and serve it on http://127.0.0.1:8000 (PORT=8001 for another port)

html: setup ## execute what changed and build the site into book/_build/html
	@$(BIN)/python tools/book.py html

html-strict: setup ## the same, and fail where a check of a page does not hold
	@$(BIN)/python tools/book.py html --strict

downloads: html pdf epub zip ## the book as PDF, EPUB and zip, in book/_build/downloads

pdf: setup browser ## print the built site into one PDF
	@$(BIN)/python tools/book.py pdf

epub: setup ## make an e-book (EPUB 3) of the built site
	@$(BIN)/python tools/book.py epub

zip: setup ## pack the built site so that it opens by double click
	@$(BIN)/python tools/book.py zip

page: setup ## build and show one chapter alone, in seconds: "make page PAGES=07"
	@$(BIN)/python tools/book.py html --part $(or $(PAGES),$(error say which: make page PAGES=07))
	@$(BIN)/python tools/book.py serve --part $(PAGES) --port $(PORT)

slides: setup ## make slides and question banks anew from the built site ('make html' makes them too)
	@$(BIN)/python tools/book.py slides

serve: setup ## serve the built site
	@$(BIN)/python tools/book.py serve --port $(PORT)

sweep: setup ## run pages under 4 seeds and 3 instruction sets (PAGES="03 04"; default: those whose record is old)
	@$(BIN)/python tools/book.py sweep $(or $(PAGES),--stale) --workers $(JOBS)

records: setup ## repeat each cheap recorded experiment for one seed and compare ("make records NAMES=dates")
	@$(BIN)/python -m experiments.records $(NAMES) --workers $(JOBS)

test: setup ## everything that CI runs, and how long each part took
	@MAKE="$(MAKE)" $(BIN)/python tools/parts.py lint types unit sets grading notebooks exercises-check html-strict site

nightly: export TESTS = long
nightly: setup hub ## what is too long for every push: right answers under 20 seeds, all sets in stock nbgrader, 20 kills, kernels for an A100, every notebook alone, a term on a hub
	@MAKE="$(MAKE)" $(BIN)/python tools/parts.py unit sets notebooks grading

lint: setup ## style and import rules
	@echo "== lint" && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

types: setup ## static types of the package
	@echo "== types" && $(BIN)/mypy

unit: setup ## tests of the package and of the build, in parallel
	@echo "== unit tests" && $(BIN)/pytest -n $(JOBS) $(BY_FILE) -q $(SLOW) -m "($(TESTS)) and not nbgrader and not book and not browser" \
		--ignore tests/exercises --ignore tests/grading --ignore tests/hostile

sets: setup ## exercises: solutions, variants, misconceptions, releases
	@echo "== exercise sets" && ATTN_TYPECHECK=0 $(BIN)/pytest -n $(JOBS) $(BY_GROUP) -q $(SLOW) -m "$(TESTS)" tests/exercises

grading: setup system browser ## the grader: jail, verdicts, gradebook, hostile submissions
	@echo "== grader" && ATTN_TYPECHECK=0 $(BIN)/pytest -n $(JOBS) $(BY_FILE) -q $(SLOW) -m "($(TESTS)) and not nbgrader" tests/grading tests/hostile

notebooks: setup ## stock nbgrader on real submissions
	@echo "== stock nbgrader" && ATTN_TYPECHECK=0 $(BIN)/pytest -n $(JOBS) --dist load -q $(SLOW) -m "$(TESTS)" tests/nbgrader

exercises: setup ## regenerate exercises/ from solutions/
	@$(BIN)/attn-course exercises build

exercises-check: setup ## fail when exercises/ is stale or leaks an answer
	@echo "== exercises in step" && $(BIN)/attn-course exercises build --check

site: browser ## check the built site, page by page, in Chromium
	@echo "== site" && ATTN_TYPECHECK=0 $(BIN)/pytest -n $(JOBS) $(BY_GROUP) -q $(SLOW) -m "($(TESTS)) and (book or browser)" tests/book tests/explorers

system: setup ## install what the grader's tests need (bubblewrap, PostgreSQL, libseccomp)
	@$(PYTHON) tools/setup.py system

browser: setup ## find or install a Chromium for the browser tests
	@$(PYTHON) tools/setup.py browser

hub: setup ## install JupyterHub and its proxy for the nightly test of a term
	@$(PYTHON) tools/setup.py hub

SETTING ?= reduced
translation: setup ## train the translation experiment (SETTING=full for a GPU); stop and repeat as you like
	@$(BIN)/python -m experiments.translation --setting $(SETTING) $(if $(OUT),--out $(OUT))

language-model: setup ## train the language-model experiment (SETTING=full for a GPU); likewise
	@$(BIN)/python -m experiments.language_model --setting $(SETTING) $(if $(OUT),--out $(OUT))

lock: setup ## resolve pyproject.toml into requirements.lock (needs network)
	@$(BIN)/pip install -q uv && UV=$(BIN)/uv tools/lock.sh

wheel: setup ## build wheel and sdist into dist/
	@$(BIN)/python -m build --no-isolation

clean: ## remove everything that was built, but not .venv
	rm -rf build dist book/_build .cache .pytest_cache .mypy_cache .ruff_cache
