# Everything one types; `make help` lists it. What students type too stands in course.mk.

NOTEBOOKS ?= notebooks
include course.mk

FROM ?=
SUBMISSIONS ?=
LINKS ?=
GRADER := $(VENV)/.ready-grader
PAGES := $(VENV)/.ready-site

.PHONY: test test-all mutants outputs sync handouts grade site

test: data  ## re-execute all notebooks, compare their outputs, try the exercises, check style and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(PY) -m tools.sync check
	@$(VENV)/bin/pytest -n 2 --dist loadscope --no-loadscope-reorder --ignore=tests/slow

test-all: test $(GRADER) $(PAGES)  ## make test, and hostile data and networks, broken set-ups, updates of a clone, grading
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
grade: $(if $(SUBMISSIONS),$(GRADER) data)  ## grade submissions: build/grades.csv, build/feedback/ (SUBMISSIONS=folder; NB="02 03")
	@test -n "$(SUBMISSIONS)" || { echo "Which submissions? make grade SUBMISSIONS=folder, with a folder in it for each student"; exit 1; }
	@$(PY) -m tools.grade "$(SUBMISSIONS)" $(NB)

sync: $(READY)  ## write paired_md/ from notebooks/ (FROM=md: the other way)
	@$(PY) -m tools.sync $(FROM)

$(PAGES): requirements-site.txt $(READY)
	@echo "Installing Sphinx and what else the site needs into $(VENV)/ (once)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r $< || { echo "It could not be installed: see the lines above; a network is needed. Then type the command again."; exit 1; }
	@touch $@

site: $(PAGES)  ## build the web site from the stored notebooks, both languages, into build/site/ (LINKS=1: try the links that lead outside)
	@$(PY) -m tools.site $(if $(LINKS),outside)
