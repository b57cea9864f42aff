# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(abspath $(VENV))/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMP  := $(VENV)/.stamp
# One worker per core, each with one BLAS thread
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist worksteal
# The second package needs Python 3.11, as Flower does; on 3.10 the first is tested alone, and says so
LAB    := $(shell P=$(BIN)/python; test -x $$P || P=$(PYTHON); $$P -c 'import sys; print("lab" * (sys.version_info >= (3, 11)))')
NO_LAB := echo "Python 3.10: the second package (integration/) needs 3.11 and is left out"
# Where `make experiments` finds its data sets, and where it keeps its cells between interruptions; what it measured goes
# to integration/results, and `make docs` makes the tables and figures of the pages from there
DATA_ROOT ?= data
RUNS      ?= .experiments
# The first ones train heads in a moment: there clients also answer as measured losses say
QUICK     ?= digits
PRESETS   ?= digits-classes digits-covariate digits-concept ag-news cifar100 cifar100-imagenet digits-memory cifar100-memory \
             ag-news-finetune cifar100-finetune cifar100-imagenet-finetune
# Seeds of the presets on frozen features; those that train layers take ten times as long and get fewer
SEEDS     ?= 5
FEW_SEEDS ?= 3
# Runs at a time, one core each
JOBS      ?= 2

.PHONY: help demo test test-core coverage attack attack-federation test-oldest test-deployment load properties verify-anywhere mutants lint docs bench bench-full bench-compare bench-peers bench-sizes experiments dist dist-check clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP)-venv:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(STAMP)-core: $(STAMP)-venv pyproject.toml
	$(PIP) -e '.[all]'
	@touch $@

$(STAMP)-test: $(STAMP)-core
	$(PIP) --group test
	@touch $@

# The explorer is tested in a real browser; without one, and without the right to install it, those tests are skipped
$(STAMP)-browser: $(STAMP)-venv
	@if ! command -v chromedriver >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      chromium chromium-driver fonts-dejavu-core >/dev/null; \
	  else echo "no Chromium here: the browser tests will be skipped (install chromium and chromedriver)"; fi; \
	fi
	@touch $@

# The second checker of saved solutions is JavaScript; without node, and without the right to install it, its tests are skipped
$(STAMP)-node: $(STAMP)-venv
	@if ! command -v node >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs >/dev/null; \
	  else echo "no node here: the tests of the second checker will be skipped (install nodejs)"; fi; \
	fi
	@touch $@

$(STAMP)-lab: $(STAMP)-core integration/pyproject.toml
	$(PIP) -e 'integration[all]'
	@touch $@

$(STAMP)-lint: $(STAMP)-core
	$(PIP) --group lint
	@touch $@

$(STAMP)-docs: $(STAMP)-core
	$(PIP) --group docs
	@touch $@

$(STAMP)-bench: $(STAMP)-core
	$(PIP) --group bench
	@touch $@

$(STAMP)-peers: $(STAMP)-bench stackfu_bench/requirements-peers.txt
	$(PIP) -r stackfu_bench/requirements-peers.txt
	$(PIP) --no-deps pyDVL==0.10.0  # asks for numpy 1, and runs with numpy 2
	@touch $@

demo: $(STAMP)-core  ## create the environment and run the main job on embedded data
	$(BIN)/stackfu demo

test: $(STAMP)-test $(LAB:lab=$(STAMP)-lab) $(STAMP)-browser $(STAMP)-node  ## install what the tests need and run them all
	$(PYTEST)
	@$(if $(LAB),set -x; $(PYTEST) integration/tests integration/stackfu_integration,$(NO_LAB))

coverage: $(STAMP)-test $(STAMP)-browser $(STAMP)-node  ## lines that the core's tests run (jitted functions as plain Python): coverage.xml, coverage.md
	$(PIP) pytest-cov
	STACKFU_COMPILE=never $(PYTEST) --cov=stackfu --cov-report=xml --cov-report=markdown:coverage.md

test-core: $(STAMP)-test $(STAMP)-browser $(STAMP)-node  ## the tests of the package itself, without the second one
	$(PYTEST)

# An environment of its own; run it with PYTHON=python3.10, for which all of these versions have wheels. What old versions
# of two packages find deprecated in each other is no concern of ours
test-oldest:  ## the same tests on the oldest versions that pyproject.toml allows
	$(MAKE) VENV=$(VENV)-oldest $(VENV)-oldest/.stamp-test
	$(VENV)-oldest/bin/python -m pip install --quiet $$($(VENV)-oldest/bin/python tests/oldest.py)
	$(VENV)-oldest/bin/python -m pytest -q -n auto -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning

test-deployment: $(STAMP)-test $(STAMP)-lab  ## the Flower deployment as separate processes, with kills; takes minutes
	STACKFU_DEPLOYMENT=1 $(BIN)/python -m pytest -q integration/tests/flower/test_deployment.py integration/tests/flower/test_superlink_auth.py

load: $(STAMP)-lab  ## the books of a thousand clients under faults and kills, and what embeddings give away; some minutes
	$(BIN)/stackfu-lab flower load --out integration/results/trust/load.json
	$(BIN)/stackfu-lab flower privacy --draws 2 --out integration/results/trust/privacy.json
	$(BIN)/stackfu-lab flower directions --seeds 2 --out integration/results/trust/directions.json
	$(BIN)/stackfu-lab flower scale --out integration/results/trust/scale.json

properties: $(STAMP)-test  ## thousands of examples per statement
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -q tests/properties tests/sensitivity

# An hour or two; exits with an error if one answer is confident and wrong
attack: $(STAMP)-test  ## games at nasty scales against references that share no code
	$(BIN)/python tests/attack/attack_equilibria.py --games 20000 --out stackfu_bench/results/attack/equilibria.json
	$(BIN)/python tests/attack/attack_leader.py --games 2000 --out stackfu_bench/results/attack/leader.json
	$(BIN)/python tests/attack/attack_offers.py --games 2000 --out stackfu_bench/results/attack/offers.json

# A quarter of an hour on two idle cores; exits with an error if a verdict was wrong
attack-federation: $(STAMP)-test $(STAMP)-lab  ## dishonest servers, clients and thieves against an oracle that knows what happened
	OMP_NUM_THREADS=1 $(BIN)/python integration/tests/flower/attack_federation.py --steps 10000 --out integration/results/trust/attack.json

# Some twenty minutes; exits with an error if the two checkers disagree once, or if broken copies of the second go unnoticed
verify-anywhere: $(STAMP)-test $(STAMP)-node  ## the second checker of saved solutions: forgeries and 1,000 random games
	$(BIN)/python -m pytest -q tests/judging/test_forgery_corpus.py tests/judging/test_second_checker.py
	$(BIN)/python tests/verify_anywhere.py --games 1000
	$(BIN)/python tests/mutation/mutants_of_second_checker.py

mutants: $(STAMP)-test  ## break every formula once: which tests notice?
	$(BIN)/python tests/mutation/mutants.py $(MODULES)

lint: $(STAMP)-lint $(STAMP)-test $(LAB:lab=$(STAMP)-lab)  ## ruff and mypy --strict
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	@$(if $(LAB),set -x; $(BIN)/mypy --config-file integration/pyproject.toml,$(NO_LAB))

docs: $(STAMP)-docs $(STAMP)-bench  ## build the documentation, warnings are errors, and asv's pages beside it
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	cd stackfu_bench && $(BIN)/asv publish --html-dir ../docs/_build/html/asv || echo "asv has no pages to show: run make bench"

# asv measures the environment as it is and keeps the figures under the commit that is checked out
MACHINE ?= $(shell uname -n)
ASV = --python=same --show-stderr --set-commit-hash=$$(git rev-parse HEAD) --machine=$(MACHINE)

bench: $(STAMP)-bench  ## quick pass over the asv suite
	cd stackfu_bench && $(BIN)/asv machine --yes --machine=$(MACHINE) && $(BIN)/asv run --quick $(ASV)
	$(BIN)/python -m stackfu_bench.records

bench-full: $(STAMP)-bench  ## the asv suite with repetitions
	cd stackfu_bench && $(BIN)/asv machine --yes --machine=$(MACHINE) && $(BIN)/asv run $(ASV)
	$(BIN)/python -m stackfu_bench.records

# Both commits are measured with the suite and the environment of the newer one; asv keeps the figures in stackfu_bench/results/asv
bench-compare: $(STAMP)-bench  ## asv on the commit BASE=... and on HEAD, as a table of ratios in stackfu_bench/comparison.md
	test -n "$(BASE)"
	cd stackfu_bench && $(BIN)/asv machine --yes --machine=$(MACHINE)
	rm -rf build/base && git worktree add --force --detach build/base $(BASE)
	cd stackfu_bench && PYTHONPATH=$(CURDIR)/build/base $(BIN)/asv run --quick --python=same --show-stderr --machine=$(MACHINE) --set-commit-hash=$$(git rev-parse $(BASE))
	cd stackfu_bench && PYTHONPATH=$(CURDIR) $(BIN)/asv run --quick --python=same --show-stderr --machine=$(MACHINE) --set-commit-hash=$$(git rev-parse HEAD)
	cd stackfu_bench && $(BIN)/asv compare --machine=$(MACHINE) $(BASE) HEAD > comparison.md
	git worktree remove --force build/base

bench-peers: $(STAMP)-peers  ## the table of ratios against other packages
	$(BIN)/python -m stackfu_bench.peers

# SIZES=--quick for the smallest alone
bench-sizes: $(STAMP)-core  ## certified payments and capped plans by number of clients; up to hours, interrupted keeps its rows
	$(BIN)/python -m stackfu_bench.leader_by_size $(SIZES)
	$(BIN)/python -m stackfu_bench.offers_by_size $(SIZES)
	$(BIN)/python -m stackfu_bench.truthfulness

experiments: $(STAMP)-lab  ## every experiment from DATA_ROOT=folder into integration/results; says how long, resumes
	OMP_NUM_THREADS=1 $(BIN)/stackfu-lab campaign $(QUICK) --answers --seeds $(SEEDS) --jobs $(JOBS) --out $(RUNS)
	OMP_NUM_THREADS=1 $(BIN)/stackfu-lab campaign $(PRESETS) --budget 0.5 --seeds $(SEEDS) --few-seeds $(FEW_SEEDS) \
	  --jobs $(JOBS) --data-root $(DATA_ROOT) --out $(RUNS)
	$(BIN)/stackfu-lab collect $(RUNS) integration/results

dist: $(STAMP)-venv  ## wheel and source distribution
	$(PIP) build && rm -rf dist && $(BIN)/python -m build --quiet

dist-check: dist  ## install the wheel into an empty environment, away from here, and run the demo
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd / && $(CURDIR)/build/empty/bin/stackfu demo --output $(CURDIR)/build/empty/demo

clean:
	rm -rf $(VENV) docs/_build dist build
