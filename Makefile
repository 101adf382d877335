# Every target works alone in a fresh clone: it makes .venv and installs what it needs.
# The environment is made anew when pyproject.toml changes. Use another Python: make tour PYTHON=...

PYTHON ?=
# The last step of Part I: one file, which reads digits and writes text. It ends the tour.
ONE_FILE := steps/step60c.py
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# The products here are small. One BLAS thread per process is fastest, and gives the same digits.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Seconds that a step may take: 10 on a quiet machine, more on the one of a reader or of CI.
export STEP_SECONDS ?= 30
# Tests at once: as many as there are cores, but no more than four, to save memory. A worker that
# has no tests left takes some of another's.
AT_ONCE := -n logical --maxprocesses 4 --dist worksteal
# In a container the user is often root. Jupyter refuses that unless it is allowed.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

.PHONY: help tour tour-all test quick contract practice-all parity fuzz notebooks \
    notebooks-refresh pictures site bench bench-gpu clean
.DELETE_ON_ERROR:

help:
	@echo "make tour               run the main road, check what it prints; one file reads and writes"
	@echo "                        (a minute or two on two cores)"
	@echo "make tour-all           run both roads and check what they print"
	@echo "make test               format, lint and all tests (about 15 minutes on two cores)"
	@echo "make quick              core, autograd and operations on the CPU (about a minute)"
	@echo "make contract           the steps of the main road print the same on the package"
	@echo "make practice-all       every exercise of Part I: start, solution and mutants"
	@echo "make parity             the tests against PyTorch (installs it: a large download)"
	@echo "make fuzz               damaged files, killed processes, wrong arguments"
	@echo "make notebooks          open the notebooks in Jupyter"
	@echo "make notebooks-refresh  execute the notebooks and save their outputs"
	@echo "make site               build the web edition in site/html (about five minutes on two cores)"
	@echo "make pictures           draw the README's pictures again"
	@echo "make bench              measure against PyTorch, DeZero and HIPS autograd"
	@echo "make bench-gpu          measure on a CUDA GPU, against PyTorch and the limits of the card"
	@echo "make clean              remove .venv and caches"

tour: $(VENV)/.core
	$(BIN)/python -m steps run
	$(ONE_THREAD) $(BIN)/python $(ONE_FILE) --tour
	@echo
	@echo "That was the tour. To begin: source $(VENV)/bin/activate, then python -m steps next"

tour-all: $(VENV)/.core
	$(BIN)/python -m steps run --all

test: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(ONE_THREAD) $(BIN)/python -m pytest $(AT_ONCE) -q

quick: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python -m pytest $(AT_ONCE) -q -m "not slow" -k "not strict" \
	    tests/core tests/autograd tests/ops

contract: $(VENV)/.core
	$(BIN)/python -m steps contract

practice-all: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python -m tests.steps.practice_all

parity: $(VENV)/.test $(VENV)/.parity
	$(ONE_THREAD) $(BIN)/python -m pytest $(AT_ONCE) -q tests/parity

fuzz: $(VENV)/.test
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz

notebooks: $(VENV)/.notebooks
	$(ONE_THREAD) $(BIN)/jupyter lab $(AS_ROOT) notebooks

notebooks-refresh: $(VENV)/.notebooks
	$(ONE_THREAD) $(BIN)/jupyter nbconvert --to notebook --execute --inplace \
	    --ExecutePreprocessor.record_timing=False notebooks/*.ipynb notebooks/depth/*.ipynb

pictures: $(VENV)/.core
	$(BIN)/python docs/make_pictures.py

site: $(VENV)/.site
	$(ONE_THREAD) $(BIN)/python -m steps.web

bench: $(VENV)/.bench
	$(ONE_THREAD) $(BIN)/python -m benchmarks

bench-gpu: $(VENV)/.bench $(VENV)/.gpu
	$(BIN)/python -m benchmarks --device cuda

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment itself, with the package and NumPy. The first Python that is new enough makes it.
$(VENV)/.core: pyproject.toml
	@set -e; \
	chosen=; \
	for python in $(or $(PYTHON),python3 python python3.14 python3.13 python3.12 python3.11); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        chosen=$$python; break; \
	    fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    found=$$($(or $(PYTHON),python3) --version 2>&1 || true); \
	    echo "tinytorch needs Python 3.11 or newer; here '$(or $(PYTHON),python3) --version'" \
	        "says: $$found" >&2; \
	    echo "Install one (python.org, conda, or your system's packages), or name it:" \
	        "make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! "$$chosen" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$chosen cannot make a virtual environment: its venv or ensurepip is missing." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv. Or name another Python:" \
	        "make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	echo "making $(VENV) with $$chosen, $$("$$chosen" --version)"; \
	rm -rf $(VENV); \
	"$$chosen" -m venv $(VENV)
	$(PIP) install --quiet --editable .
	@touch $@

# One more set of packages each, named as in pyproject.toml.
$(VENV)/.test $(VENV)/.parity $(VENV)/.notebooks $(VENV)/.bench $(VENV)/.gpu $(VENV)/.site $(VENV)/.browser: $(VENV)/.core
	$(PIP) install --quiet --editable ".[$(@:$(VENV)/.%=%)]"
	@touch $@
