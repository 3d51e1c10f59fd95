# Variables: make run DATASET=cub METHODS=margin,arcface SEEDS=5 WORK=/scratch/oodml
PYTHON ?= python3
WORK ?= work
DATASET ?=
METHODS ?= all
SEEDS ?=
PAGES ?= $(WORK)/pages

VENV := .venv
LOWEST := .venv-lowest
OODML := $(VENV)/bin/oodml
READY := $(VENV)/.ready
export OODML_WORK := $(WORK)
# without lengths and precision: methods of glyphs trained once more, for other lengths or in other arithmetic, would be
# further methods wherever pages compute over all of them: rank correlations, structure, the best method of a network
PUBLISHED := --records reports/data/records/glyphs --records reports/data/records/photos --records reports/data/records/frozen --records reports/data/records/fixed-test --records reports/data/submissions
AGAINST := $(subst --records,--against,$(PUBLISHED))

.DEFAULT_GOAL := help
.PHONY: demo splits run report pages board docs notebook submissions check-submissions standing test test-slow chaos chaos-commands fuzz test-lowest test-browser test-slurm lint bench clean help

demo: $(READY) ## Set up, then the whole line on the embedded glyphs: ladder, training, leaderboard
	$(OODML) splits build --dataset glyphs --rungs 4 --swaps 20 --iterations 7 --no-removal
	$(OODML) run --study demo
	$(OODML) report

splits: $(READY) ## Build the ladder of DATASET (default: of every dataset that is present)
	$(OODML) splits build $(if $(DATASET),--dataset $(DATASET))

run: $(READY) ## Train METHODS on the ladder of DATASET with SEEDS seeds
	$(OODML) run --dataset $(or $(DATASET),glyphs) --methods '$(METHODS)' $(if $(SEEDS),--seeds $(SEEDS))

report: $(READY) ## Build the leaderboard from the finished runs; where there are none, from the published records
	$(OODML) report $(if $(shell find $(WORK)/runs -name record.json -print -quit 2>/dev/null),,$(PUBLISHED))

pages: docs ## Build what is published in the folder PAGES: the leaderboard of the published records, the documentation
	$(OODML) report $(PUBLISHED) --out $(PAGES) $(if $(URL),--url $(URL))
	rm -rf $(PAGES)/docs && cp -r $(WORK)/docs $(PAGES)/docs

board: $(READY) ## Cut the version VERSION of the board (v2026.1) from the published records and packs
	$(OODML) board cut $(VERSION) $(PUBLISHED)

docs: $(WORK)/own_data.ipynb ## Build the documentation in WORK/docs; every warning and every dead link is an error
	NOTEBOOK=$(abspath $(WORK))/own_data.ipynb NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict --config-file docs/mkdocs.yml --site-dir $(abspath $(WORK))/docs

notebook: $(WORK)/own_data.ipynb ## Execute the notebook in examples/ into WORK
$(WORK)/own_data.ipynb: examples/own_data.ipynb $(READY)
	$(VENV)/bin/python -m pip install --quiet --editable '.[docs]'
	mkdir -p $(WORK)
	COLUMNS=100 PATH=$(abspath $(VENV)/bin):$$PATH $(VENV)/bin/jupyter-execute --timeout 600 --output $(abspath $@) $<

PACKS ?= $(wildcard reports/data/submissions/*/)
submissions: $(READY) ## Check the submitted packs, or PACKS: every score is computed again
	$(if $(PACKS),$(OODML) submit --check $(PACKS),@echo "there are no packs")

check-submissions: $(READY) ## Check every pack in the folder SUBMISSIONS and write where each would stand into the file COMMENT
	OODML=$(OODML) AGAINST="$(AGAINST)" sh .github/check_submissions.sh $(or $(SUBMISSIONS),reports/data/submissions) $(or $(COMMENT),$(WORK)/comment.md)

standing: $(READY) ## Say in Markdown where each of PACKS would stand among the published records
	@$(foreach pack,$(PACKS),$(OODML) diff $(AGAINST) $(pack) &&) true

# sys.monitoring is the cheaper way to count lines; the default one makes the tests half as slow again
test: export COVERAGE_CORE := $(shell $(PYTHON) -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
test: $(READY) ## Run every test that needs no browser; COVERAGE=1 prints how many lines of the packages they reach
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses auto --dist loadfile --ignore tests/browser $(if $(COVERAGE),--cov --cov-report=)
	$(if $(COVERAGE),@echo "coverage: $$($(VENV)/bin/python -m coverage report --format=total) % of lines")

test-slow: $(READY) ## Run the tests that take minutes each
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m slow

chaos: $(READY) ## Kill processes of a sweep KILLS times (default 60) and compare its records with undisturbed ones
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.chaos --kills $(or $(KILLS),60)

chaos-commands: $(READY) ## Kill splits build, records, report, check and submit at each kind of change they make on the disk
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.chaos_commands --build-kills $(or $(KILLS),60)

fuzz: $(READY) ## Read FUZZ damaged inputs of every kind (default 5000), from the seed FUZZ_SEED
	FUZZ=$(or $(FUZZ),5000) FUZZ_SEED=$(or $(FUZZ_SEED),1) OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses auto tests/test_fuzz.py

# a part of the tests that imports, trains, measures and reports with everything that pyproject.toml gives a lower bound
QUICK := tests/test_frechet.py tests/test_metrics.py tests/test_backbones.py tests/test_attempt.py tests/test_tables.py tests/test_site.py tests/test_cli.py tests/test_shards.py
test-lowest: ## Install the oldest dependencies that pyproject.toml allows, and run a quick part of the tests
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest --numprocesses auto $(QUICK)

test-browser: $(READY) ## Drive the leaderboard in a real headless Chromium (installs it)
	$(VENV)/bin/python -m pip install --quiet --editable '.[browser]'
	PYTHON=$(VENV)/bin/python sh tests/browser/run.sh

test-slurm: $(READY) ## Do runs on a real single-node Slurm (installs it)
	$(VENV)/bin/python -m pip install --quiet --editable '.[slurm]'
	PYTHON=$(VENV)/bin/python sh tests/slurm/run.sh

lint: $(READY) ## Check style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

bench: $(READY) ## Measure speed against what one would use instead
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.bench

clean: ## Remove the environment and what was made (never the data)
	rm -rf $(VENV) $(LOWEST) $(WORK)/cache $(WORK)/splits $(WORK)/plans $(WORK)/runs $(WORK)/leaderboard $(WORK)/pages $(WORK)/docs $(WORK)/own_data.ipynb *.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage

help: ## Show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=python3.x"; exit 1; }
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)
