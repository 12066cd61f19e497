# make setup  .venv with what the package needs
# make demo   sets up .venv and runs the main job: base -> SFT -> GRPO on word problems; two to three minutes on two cores
# make test   adds the tests' packages to .venv and runs the tests, style and types beside them
# make test-long   further variants of what the tests check (marked long); three minutes
# make proof  the longer proofs: learning over seeds, runs killed and resumed; writes docs/results/foundation.*
# make proof-rlhf, -rows, -scale, -exercises, -environments, -reasoning, -oversight, -studio, -mend, -book, -house,
#             -reliability   the others, a page of docs/results each: minutes to hours; python proofs/NAME.py --help says which parts it has
# make proof-judges, -coverage, -files, -mistakes   parts of proof-mend: hostile replies through every verifier and every
#             generator of reasoning-gym; how often intervals hold the truth; hostile files; mistakes at the command line
# make proof-doctor   the part of proof-rows with twenty planted faults and twenty healthy runs
# make docs   makes every generated page anew
# make bench  postgrad and TRL on the same work, interleaved; about ten minutes; writes docs/results/speed-cpu.*
# make lint   style and types

PYTHON ?= python3
BIN = .venv/bin
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
CORE = .venv/.core
READY = .venv/.ready
# TORCH_INDEX=URL: an index of torch's builds, such as PyTorch's for the CPU; without it pip's own
TORCH_INDEX ?=

.PHONY: setup demo test suite test-long bench docs lint clean proof proof-rlhf proof-rows proof-scale proof-exercises \
	proof-environments proof-reasoning proof-oversight proof-studio proof-mend proof-book proof-judges \
	proof-coverage proof-files proof-mistakes proof-doctor proof-house proof-reliability
.DELETE_ON_ERROR:

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"postgrad needs Python 3.11 or newer; this is {v.major}.{v.minor}. Set PYTHON=python3.12, say.")'
	$(PYTHON) -m venv .venv
	[ -z "$(TORCH_INDEX)" ] || $(PIP) -c constraints.txt --no-deps --index-url $(TORCH_INDEX) torch
	$(PIP) -c constraints.txt -e .
	touch $@

$(READY): $(CORE)
	$(PIP) -c constraints.txt -e '.[test]'
	touch $@

setup: $(CORE)

demo: $(CORE)
	$(BIN)/postgrad demo

test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint suite

suite: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m long

proof proof-rlhf proof-rows proof-scale proof-exercises proof-environments proof-reasoning proof-oversight proof-studio \
proof-mend proof-book: proof%: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python proofs/$(if $*,$(*:-%=%),foundation).py

proof-judges: $(READY)
	$(BIN)/python proofs/mend.py replies gym

proof-coverage: $(READY)
	$(BIN)/python proofs/mend.py coverage

proof-files: $(READY)
	$(BIN)/python -m pytest -m "" tests/models/hostile_files_test.py

proof-mistakes: $(READY)
	$(BIN)/python -m pytest tests/cli/main_test.py -k a_mistake

proof-doctor: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python proofs/rows.py doctor

proof-house: $(READY)
	$(BIN)/python proofs/house.py

proof-reliability: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python proofs/reliability.py

bench: $(READY)
	$(BIN)/python bench/speed.py

docs: $(READY)
	$(BIN)/python tools/docs.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv build dist *.egg-info
