# Everything one types; `make help` lists it. What students type too stands in course.mk.

NOTEBOOKS ?= notebooks
include course.mk

FROM ?=
SUBMISSIONS ?=
JOBS ?=
CLUSTER ?=
TLS ?=
SERVERS ?=
TRACKER ?=
KEY ?=
GRADER := $(VENV)/.ready-grader

.PHONY: test test-all mutants outputs sync handouts grade autograder tune

test: data  ## re-execute all notebooks, compare their outputs, try the exercises, check style and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(PY) -m tools.sync check
	@$(VENV)/bin/pytest -n 2 --dist loadscope --no-loadscope-reorder --ignore=tests/slow

test-all: test $(GRADER)  ## make test, and hostile data and networks, broken set-ups, updates of a clone, grading
	@$(VENV)/bin/pytest -n 2 --dist loadscope tests/slow

mutants: data  ## change the solutions mechanically and say which changes the checks miss (NB="03 5.1": some)
	@$(PY) -m tools.mutants $(NB)

outputs: data  ## execute the notebooks and store their outputs (TIMES=1: measured times as well)
	@$(PY) -m tools.execute outputs
	@$(PY) -m tools.sync

handouts: $(READY)  ## write what students get to build/handouts/, without solutions (NB="02 03": some notebooks)
	@$(PY) -m tools.handouts $(NB)

# these stand beside the course's packages in the instructor's .venv; students have none of them
$(GRADER): instructor/requirements.txt $(READY)
	@echo "Installing what grading needs into $(VENV)/ (once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r instructor/requirements.txt || { echo "It could not be installed: see the lines above; a network is needed. Then type the command again."; exit 1; }
	@touch $@
grade: $(if $(SUBMISSIONS),$(GRADER) data)  ## grade submissions: build/grades.csv, build/feedback/ (SUBMISSIONS=folder; NB="02 03", JOBS=1, FRESH=1, CLUSTER=tcp://host:8786, TLS=folder)
	@test -n "$(SUBMISSIONS)" || { echo "Which submissions? make grade SUBMISSIONS=folder, with a folder in it for each student"; exit 1; }
	@$(PY) -m tools.grade "$(SUBMISSIONS)" $(NB) $(if $(JOBS),--jobs "$(JOBS)") $(if $(CLUSTER),--cluster "$(CLUSTER)") $(if $(TLS),--tls "$(TLS)") $(if $(FRESH),--fresh)

autograder: $(if $(NB),$(GRADER))  ## write Gradescope's autograder to build/autograder/ (NB=02)
	@$(PY) -m tools.autograder zip $(NB)

tune: $(BENCH) data  ## search notebook 07's schedules anew, for minutes (SERVERS=2: by RPC servers; TRACKER=host:9190 KEY=name: by those)
	@$(PY) -m tools.tune $(if $(SERVERS),--servers "$(SERVERS)") $(if $(TRACKER),--tracker "$(TRACKER)") $(if $(KEY),--key "$(KEY)")

sync: $(READY)  ## write paired_md/ from notebooks/ (FROM=md: the other way)
	@$(PY) -m tools.sync $(FROM)
