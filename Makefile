# All commands; `make help` lists them. Those that students use too are in instructor/student.mk.

NOTEBOOKS ?= notebooks
include instructor/student.mk

FROM ?=
ACCEPT ?=
SUBMISSIONS ?=
CLUSTER ?=
TLS ?=
UNSAFE ?=
TRACKER ?=
KEY ?=
# a worker for each processor, up to the four with which all tests were tried
PYTEST := $(VENV)/bin/pytest -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder
GRADER := $(VENV)/.ready-grader
PAGES := $(VENV)/.ready-site

.PHONY: test notebooks test-all mutants outputs sync handouts grade autograder tune site colab

test: data  ## re-execute all notebooks, compare their outputs, try the exercises, check style and types (NB=5.4: try one exercise)
##zh test: 重新执行所有 notebook，对照输出，试每道练习，检查风格和类型（NB=5.4：只试一道练习）
ifneq ($(NB),)
	@$(PYTEST) tests/test_exercises.py tests/slow/test_more_answers.py tests/slow/test_more_mutants.py --exercises "$(NB)"
else
	@$(VENV)/bin/ruff check .
	@$(PY) -m tools.sync check
	@$(PY) -m tools.translation
	@$(PYTEST) --ignore=tests/slow
endif

notebooks: data  ## re-execute all notebooks and compare their outputs, nothing else: a part of make test
##zh notebooks: 只重新执行所有 notebook 并对照输出（make test 的一部分）
	@$(PYTEST) notebooks

test-all: test $(GRADER) $(PAGES)  ## make test, plus hostile data and networks, broken setups, updates of a clone, grading
##zh test-all: 除 make test 之外，再试损坏的数据和网络、出错的环境、克隆的更新、评分
	@$(PYTEST) tests/slow

mutants: data  ## change the solutions mechanically, or how they behave, and say which changes the checks miss (NB="03 5.1": some)
##zh mutants: 机械地改动答案或它的行为，看检查漏掉哪些（NB="03 5.1" 只试这些）
	@PYTHONPATH=tests $(PY) -m mutants $(NB)

outputs: data  ## execute the notebooks and store their outputs (NB="02 03": some; TIMES=1: measured times as well)
##zh outputs: 执行 notebook 并保存输出（NB="02 03" 只执行这几个；TIMES=1 连同测得的时间）；只用于英文版
	@$(PY) -m tools.execute outputs $(NB)
	@$(PY) -m tools.sync

handouts: $(READY)  ## write what students get to build/handouts/, without solutions (NB="02 03": some notebooks)
##zh handouts: 把发给学生的文件写到 build/handouts/zh/，不含答案（NB="02 03" 只要这几个）
	@$(PY) -m tools.handouts $(NB)

# these are next to the course's packages in the instructor's .venv; students don't have them
$(GRADER): instructor/requirements.txt $(READY)
	@$(PY) -m tools.install $(VENV) $<
	@touch $@
grade: $(if $(SUBMISSIONS),$(GRADER) data)  ## grade submissions: build/grades.csv, build/feedback/ (SUBMISSIONS=folder; NB="02 03", FRESH=1, UNSAFE=1, CLUSTER=tcp://host:8786, TLS=folder)
##zh grade: 给提交的作业评分：build/grades.csv、build/feedback/（SUBMISSIONS=文件夹；NB="02 03"、FRESH=1、UNSAFE=1、CLUSTER=tcp://host:8786、TLS=文件夹）
	@test -n "$(SUBMISSIONS)" || { echo "$(if $(ZH),给哪些提交评分？请输入 make grade SUBMISSIONS=文件夹，其中每个学生一个文件夹,Which submissions? make grade SUBMISSIONS=folder, with a folder in it for each student)"; exit 1; }
	@$(if $(UNSAFE),UNSAFE=1) $(PY) -m tools.grade "$(SUBMISSIONS)" $(NB) $(if $(CLUSTER),--cluster "$(CLUSTER)") $(if $(TLS),--tls "$(TLS)") $(if $(FRESH),--fresh)

autograder: $(if $(NB),$(GRADER))  ## write Gradescope's autograder to build/autograder/ (NB=02)
##zh autograder: 把 Gradescope 的自动评分包写到 build/autograder/（NB=02）
	@$(PY) -m tools.autograder zip $(NB)

tune: $(BENCH) data  ## search notebook 08's schedules again, which takes minutes (TRACKER=host:9190 KEY=name: on the devices there)
##zh tune: 重新搜索 notebook 08 的调度，要几分钟（TRACKER=host:9190 KEY=名字：用登记在那里的设备）
	@$(PY) -m tools.tune $(if $(TRACKER),--tracker "$(TRACKER)") $(if $(KEY),--key "$(KEY)")

sync: $(READY)  ## write paired_md/ from notebooks/ (FROM=md: the other way; ACCEPT="02 README.md": the Chinese of changed paragraphs there is still right)
##zh sync: 由 notebooks/ 写出 paired_md/，并更新中文版（FROM=md：由 paired_md/ 写回 notebooks/；ACCEPT="02 README.md"：其中英文改过的段落，中文仍然正确）
	@$(PY) -m tools.sync $(FROM) $(if $(ACCEPT),accept $(ACCEPT))

$(PAGES): docs/requirements.txt $(READY)
	@$(PY) -m tools.install $(VENV) $<
	@touch $@

site: $(PAGES)  ## build the web site from the stored notebooks, both languages, into build/site/
##zh site: 由保存的 notebook 生成两种语言的网站，写入 build/site/
	@$(PY) -m tools.site

# it needs nothing of the course: without a .venv, three small packages in build/ are enough
COLAB := $(if $(wildcard $(PINNED)),$(PY),build/colab.venv/bin/python)
build/colab.venv/bin/python:
	@$(GATE)
	@$(PYTHON) -m venv build/colab.venv
	@build/colab.venv/bin/pip install --quiet -c requirements.txt polib nbformat jupytext || { rm -r build/colab.venv; exit 1; }
colab: $(filter build/%,$(COLAB))  ## write the students' notebooks for Google Colab, both languages, to build/colab/ (NB="02 03": some)
##zh colab: 生成可在 Google Colab 中打开的学生版 notebook（中英文都有），写入 build/colab/（NB="02 03"：只要其中几个）
	@$(COLAB) -m tools.colab $(NB)
