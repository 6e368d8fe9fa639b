# Everything one types; `make help` lists it.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)
FRESH ?=
FROM ?=
CPU ?=
NB ?=
SUBMISSIONS ?=
ALL ?=
GRADER := $(VENV)/.ready-grader
BENCH := $(VENV)/.ready-bench
export TQDM_DISABLE := 1

.PHONY: help lab run test test-all mutants outputs sync data doctor handouts grade bench

help:  ## list the targets
	@echo "Machine learning compilation, a course that runs. What you can type:"
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-15s %s\n", $$1, $$2}'

$(READY): requirements.txt $(if $(CPU),requirements-cpu.txt)
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed and not found; install one, or name it: make PYTHON=/path/to/python3.12 ..."; exit 1; }
	@echo "Installing the packages of requirements$(if $(CPU),-cpu).txt into $(VENV)/ (once; some minutes)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "This Python cannot make a virtual environment. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements$(if $(CPU),-cpu).txt || { echo "The packages could not be installed: see the lines above; a network is needed. Then type the command again."; exit 1; }
	@touch $@

data: $(READY)  ## fetch the images and weights into data/, or say that the stand-in is used
	@$(PY) -m data.fetch

lab: data  ## set everything up and open your notebooks, work/, in JupyterLab (FRESH=03 sets one back; CPU=1: small torch)
	@$(PY) tools/student.py $(FRESH)
	@$(PY) tools/lab.py

run: data  ## execute every solved notebook, with times, and write them as HTML to build/html/
	@$(PY) tools/execute.py run

test: data  ## re-execute all notebooks, compare their outputs, try the exercises, check the style
	@$(VENV)/bin/ruff check .
	@$(PY) tools/sync.py check
	@$(VENV)/bin/pytest -n 2 --dist loadscope --ignore=tests/slow

test-all: test $(GRADER)  ## make test, and hostile data and networks, broken set-ups, updates of a clone, grading
	@$(VENV)/bin/pytest -n 2 --dist loadscope tests/slow

mutants: data  ## change the solutions mechanically and say which changes the checks miss (NB="03 5.1": some)
	@$(PY) -m tools.mutants $(NB)

outputs: data  ## execute the notebooks and store their outputs (TIMES=1: measured times as well)
	@$(PY) tools/execute.py outputs
	@$(PY) tools/sync.py

doctor:  ## say what is wrong with this machine's set-up, one line a thing, with the fix
	@p=$(PY); [ -x $$p ] || p=$(or $(PYTHON),python3); $$p tools/doctor.py

handouts: $(READY)  ## write what students get to build/handouts/, without solutions (NB="02 03": some notebooks)
	@$(PY) -m tools.handouts $(NB)

# these stand beside the course's packages in the instructor's .venv; students have none of them
$(GRADER): instructor/requirements.txt $(READY)
	@echo "Installing what grading needs into $(VENV)/ (once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r instructor/requirements.txt || { echo "It could not be installed: see the lines above; a network is needed. Then type the command again."; exit 1; }
	@touch $@
grade: $(if $(SUBMISSIONS),$(GRADER) data)  ## grade submissions: build/grades.csv, build/feedback/ (SUBMISSIONS=folder; NB="02 03")
	@test -n "$(SUBMISSIONS)" || { echo "Which submissions? make grade SUBMISSIONS=folder, with a folder in it for each student"; exit 1; }
	@$(PY) -m tools.grade "$(SUBMISSIONS)" $(NB)

# students have none of what the benchmark compares with
$(BENCH): requirements-bench.txt $(READY)
	@echo "Installing ONNX Runtime and its exporter into $(VENV)/ (once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r $< || { echo "They could not be installed: see the lines above; a network is needed. Without ONNX Runtime: $(PY) tools/bench.py 4"; exit 1; }
	@touch $@

bench: $(BENCH) data  ## time notebook 06's model beside ONNX Runtime and PyTorch (ALL=1: batches of 1, 4, 16, 64)
	@$(PY) tools/bench.py $(if $(ALL),1 4 16 64,4)

sync: $(READY)  ## write paired_md/ from notebooks/ (FROM=md: the other way)
	@$(PY) tools/sync.py $(FROM)
