# make demo   sets up .venv and runs the main job: base -> SFT -> GRPO on word problems; two to three minutes on two cores
# make test   sets up .venv and runs the tests, style and types beside them
# make test-long   further variants of what the tests check (marked long); three minutes
# make proof  the longer proofs: learning over seeds, runs killed and resumed; writes docs/results/foundation.*
# make proof-rlhf   the proofs of RLHF, about two hours; writes docs/results/rlhf.*
# make proof-judges   50,000 hostile replies through every verifier, every generator of reasoning-gym; half an hour
# make proof-coverage   how often the 95 % intervals hold the truth, simulated; two minutes
# make proof-files   hostile files and folders through the command; ten minutes
# make proof-mistakes   the mistakes of tests/support/hostile/mistakes.py at the command line, through the real main; a minute
# make proof-mend   what a second look found: every fault's tests and corpora; an hour; writes docs/results/mend.*
# make proof-house   one door: TRL side by side, a stranger's changes, deliberate faults; writes docs/results/house.*
# make proof-doctor   twenty planted faults and twenty healthy runs, named by the doctor; ten minutes; for proof-rows
# make proof-rows   every row's tests, and the figures that bake-off, distillation and doctor left; writes docs/results/rows.*
# make proof-exercises   model solutions, planted mistakes, hostile answers: a minute; writes docs/results/exercises.*
# make proof-scale   several ranks against one process, ranks killed, a divided model; an hour; writes docs/results/scale.*
# make proof-book   what the book holds, its tests in a browser, the exported site; half an hour; writes docs/results/book.*
# make bench  postgrad and TRL on the same work, interleaved; about ten minutes; writes docs/results/speed-cpu.*
# make lint   style and types

PYTHON ?= python3
BIN = .venv/bin
READY = .venv/.ready

.PHONY: demo test suite test-long proof proof-rlhf proof-judges proof-coverage proof-files proof-mistakes \
	proof-mend proof-house proof-doctor proof-rows proof-exercises proof-scale proof-book bench lint clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"postgrad needs Python 3.11 or newer; this is {v.major}.{v.minor}. Set PYTHON=python3.12, say.")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

demo: $(READY)
	$(BIN)/postgrad demo

test: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint suite

suite: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-long: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m long

proof: $(READY)
	$(BIN)/python proofs/foundation.py

proof-rlhf: $(READY)
	$(BIN)/python proofs/rlhf.py all runs/proof-rlhf

proof-judges: $(READY)
	$(BIN)/python proofs/totality.py
	$(BIN)/python proofs/generators.py

proof-coverage: $(READY)
	$(BIN)/python proofs/interval_coverage.py

proof-files: $(READY)
	$(BIN)/python proofs/hostile_files.py

proof-mistakes: $(READY)
	$(BIN)/python proofs/mistakes.py

proof-mend: $(READY)
	$(BIN)/python proofs/mend.py runs/proof-mend

proof-house: $(READY)
	$(BIN)/python proofs/house.py

proof-doctor: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python proofs/doctor.py

proof-rows: $(READY)
	$(BIN)/python proofs/rows.py

proof-exercises: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python proofs/exercises.py

proof-scale: $(READY)
	$(BIN)/python proofs/scale.py runs/proof-scale

proof-book: $(READY)
	-OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --junitxml=runs/proof-book/tests.xml
	$(BIN)/python proofs/static_site.py runs/proof-book
	$(BIN)/python proofs/the_book.py runs/proof-book

bench: $(READY)
	$(BIN)/python bench/speed.py --write

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:
	rm -rf .venv build dist *.egg-info
