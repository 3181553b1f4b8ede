# On a fresh machine with Python 3.11 or newer:
#
#   make demo      a team of agents on a phone and on web pages, and what it did
#   make test      fast tests and one real episode per environment, in a real browser (six minutes on two cores)
#   make check     style, types, the fast tests and those of whole trainings and pages (about ten minutes)
#   make style     style and types alone
#   make test-all  the slow tests too (most of an hour)
#   make vendors   the dialects against the packages of the models' vendors, fetched first (about three minutes)
#   make ray       what plays in Ray workers, with the extra ray, installed first (about ten minutes)
#   make clean     remove .venv and everything that can be made again; never runs/
#
# Each makes .venv first, once. Another interpreter: make PYTHON=python3.12 demo. Tests run in two processes; in more:
# make WORKERS=8 test

PYTHON ?= python3
EXTRAS := train,web,android,view,parquet,dev
BIN := .venv/bin
INSTALLED := .venv/installed
# Ray is large and few tests need it, so only `make ray` installs it.
RAY := .venv/installed-ray
# Files stay in their order, half of them each, so that what a file or a folder shares is made once.
WORKERS ?= 2
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
# Packages of vendors lie apart from .venv: they need older or newer neighbours than Collab does.
VENDORS ?= build/vendors

# Keep bytecode, even if the shell forbids it: without it, each process compiles Collab and the tests anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check style test-all vendors ray browser clean

help:
	@sed -n '3,10s/^# *//p' Makefile

demo: $(INSTALLED) browser
	$(BIN)/collab demo --out runs/demo

test: $(INSTALLED) browser
	@echo "fast tests, and one real episode per environment: six minutes on two cores; the last line tells the time"
	$(PYTEST) -m 'not slow and not medium and not network and not gpu and not android'

check: style browser
	@echo "all tests but slow ones: about ten minutes on two cores; the last line tells the time"
	$(PYTEST) -m 'not slow and not network and not gpu and not android'

style: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test-all: $(INSTALLED) browser
	@echo "all tests: most of an hour on two cores; the last line tells the time"
	$(PYTEST) -m 'not network and not gpu and not android'

vendors: $(INSTALLED) $(VENDORS)/installed
	@echo "the dialects against the vendors' packages: about three minutes; it prints one line per comparison"
	PYTHONPATH=$(VENDORS) $(BIN)/pytest -m slow -rP tests/dialects/test_vendors.py tests/dialects/test_vendor_items.py

$(VENDORS)/installed: tests/dialects/vendors.txt
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --upgrade --target $(VENDORS) -r $<
	@touch $@

ray: $(RAY)
	@echo "what plays in Ray workers, one test at a time: about ten minutes on two cores; the last line tells the time"
	$(BIN)/pytest -m ray tests

$(RAY): $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),ray]'
	@touch $@

browser: $(INSTALLED)
	@$(BIN)/python scripts/ensure_browser.py

$(INSTALLED): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: '$(PYTHON)' is missing or older than Python 3.11; name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: '$(PYTHON)' comes without venv; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find collab scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +
