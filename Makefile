# Two commands on a fresh machine, with nothing but Python, pip and make:
#   make demo   sets everything up and runs the demonstration
#   make test   sets everything up and runs lint, types and the tests (those that take minutes: make attacks)

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# uv reads neither pip.conf nor PIP_*: hand on where pip would look for local wheels (a CPU build of torch, say).
LINKS  := $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null || echo "$$PIP_FIND_LINKS")
UV     := UV_FIND_LINKS="$(LINKS)" VIRTUAL_ENV="$(VENV)" $(BIN)/uv
LOCKS  := requirements.lock requirements-torch.lock requirements-uv.lock
TORCH  := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-torch.lock
COMPILE := --no-header --quiet --generate-hashes
STAMP  := $(VENV)/.ready-$(shell cat $(LOCKS) pyproject.toml | cksum | cut -d' ' -f1)

# Compiled modules are kept even where the environment says not to: many tests and commands start Python anew.
export PYTHONDONTWRITEBYTECODE :=

# The browser tests need a Chromium and its driver; without them they are skipped, which nobody should overlook.
BROWSER := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null
WARNING := { $(BROWSER); } || echo "solera: WARNING: no Chromium with chromedriver on the PATH: THE BROWSER TESTS ARE SKIPPED"
APT     := DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver

.PHONY: demo test attacks browser lint types docs benchmark mutants lock licences clean

demo: $(STAMP)
	$(BIN)/solera demo

test: $(STAMP) lint types browser
	@echo "solera: running the tests (about 13 minutes on two cores)"
	@$(WARNING)
	@status=0; $(BIN)/python -m pytest || status=$$?; $(WARNING); exit $$status

# Attacks that take minutes: kills, flipped bits, fuzzing.
attacks: $(STAMP)
	$(BIN)/python -m pytest -m long -n 0

# Debian's Chromium, where this may install it and there is none yet.
browser:
	@{ $(BROWSER); } || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
	  echo "solera: installing chromium and chromium-driver for the browser tests"; \
	  { $(APT) || { apt-get update -qq && $(APT); }; } >/dev/null || true; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/basedpyright

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

benchmark: $(STAMP)
	$(BIN)/python -m benchmarks

# Breaks the code by hand-chosen mistakes and prints the share that the tests notice; ONLY=training for one package.
mutants: $(STAMP)
	$(BIN)/python tools/mutants.py $(if $(ONLY),--only $(ONLY))

$(STAMP): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "solera: needs Python 3.11 or later, found $$($(PYTHON) --version): try make PYTHON=python3.11"; exit 1; }
	@echo "solera: setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	@# the locks are complete, so nothing is installed that they have no hash for; hatchling, which builds us, is there
	@# first of the wheels that pip is told of: it prefers the index's, whose hashes it knows before it has looked at them
	$(TORCH) --no-index 2>/dev/null || $(TORCH)
	$(UV) pip install --quiet --require-hashes --no-deps -r requirements.lock
	@# only where torch is the public build for Linux does this add something: its CUDA packages, which have no hash here
	$(UV) pip install --quiet "$$(grep '^torch==' requirements.in)"
	$(UV) pip install --quiet --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.ready-* && touch $@
	@echo "solera: ready"

# Rewrites requirements.lock: the tested versions of everything, extras, development and build tools included, each
# with the hashes of its files.
lock:
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.lock; }
	@# the CPU build, by its local name, where there is one: the public build would lock gigabytes of CUDA packages
	sed 's/^torch==[0-9.]*/&+cpu/' requirements.in > .lock-constraints
	$(UV) pip compile pyproject.toml --all-extras --group dev $(COMPILE) --constraint .lock-constraints -o .lock-resolved
	grep '^torch==' requirements.in > .lock-torch.in
	UV_FIND_LINKS= $(BIN)/uv pip compile .lock-torch.in --no-deps $(COMPILE) -o .lock-torch
	$(BIN)/python tools/lock.py .lock-resolved .lock-torch requirements.lock requirements-torch.lock
	grep '^uv==' requirements.in > .lock-uv.in
	$(BIN)/uv pip compile .lock-uv.in --no-deps --no-annotate $(COMPILE) -o requirements-uv.lock
	@rm -f .lock-*

# The licence of every package in the lock, for people (licences.md) and for machines (sbom.json, CycloneDX).
licences: $(STAMP)
	$(BIN)/python tools/licences.py build/licences $(LOCKS)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache
