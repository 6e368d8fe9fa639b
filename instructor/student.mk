# The students' commands. Makefile includes it; in a handout it is the Makefile.

VENV := .venv
PY := $(VENV)/bin/python
# named by the pins' checksum: a handout's files are dated long before those here. GPU=1 has its own name,
# so that it installs the CUDA build into an environment that has the CPU build.
PINNED := $(VENV)/.ready-$(firstword $(shell cksum < requirements.txt))
READY := $(PINNED)$(if $(GPU),-gpu)
BENCH := $(VENV)/.ready-bench
# data/versions.py has these too; some systems package Python in parts, and what comes first is half of it
FITS := import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 14)
WHOLE := import shutil, venv, ensurepip
FOUND = $(shell for parts in '; $(WHOLE)' ''; do for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c "$(FITS)$$parts" 2>/dev/null && echo $$p && exit; done; done)
PYTHON ?= $(eval PYTHON := $(FOUND))$(PYTHON)
NOTEBOOKS ?= work
NB ?=
FRESH ?=
ALL ?=
THIS := $(lastword $(MAKEFILE_LIST))
export TQDM_DISABLE := 1

# LANG=zh on the command line, or before it, asks for the Chinese edition. A locale does not: LANG=zh_CN.UTF-8
# is in many environments. Nor is there a locale called zh, so programs get another one. MLC_LANG is set only
# if LANG=zh was asked for: else a notebook in work/zh/ speaks Chinese in a JupyterLab of `make lab` too.
EDITION := en
ifneq ($(filter command,$(origin LANG))$(filter en zh,$(LANG)),)
EDITION := $(LANG)
override LANG := C.UTF-8
export MLC_LANG := $(EDITION)
else ifneq ($(MLC_LANG),)
EDITION := $(MLC_LANG)
endif
ifeq ($(EDITION),zh)
export MLC_LANG := zh
endif
ifeq ($(filter en zh,$(EDITION)),)
$(error The course is in English, LANG=en, and in Chinese, LANG=zh; $(EDITION) is neither)
endif
ZH := $(filter zh,$(EDITION))

# says in one line which Python is missing, and stops there
ANOTHER := $(if $(ZH),请安装一个，或指明它在哪里：,install one, or name it: )make PYTHON=/path/to/python3.12 ...
GATE = told() { echo "$$*"; exit 1; }; test -n "$(PYTHON)" \
	|| told "$(if $(ZH),需要 Python 3.11 到 3.14，但没有找到；,Python 3.11 to 3.14 is needed and not found; )$(ANOTHER)"; \
	$(PYTHON) -c "" 2>/dev/null || told "$(PYTHON) $(if $(ZH),不是能运行的 Python；,is no Python that runs; )$(ANOTHER)"; \
	$(PYTHON) -c "$(FITS)" 2>/dev/null \
	|| told "$(PYTHON) $(if $(ZH),是,is) $$($(PYTHON) -V 2>&1)$(if $(ZH),，而需要的是 Python 3.11 到 3.14；,: Python 3.11 to 3.14 is needed; )$(ANOTHER)"; \
	$(PYTHON) -c "$(WHOLE)" 2>/dev/null || test -x $(PY) \
	|| told "$(PYTHON) $(if $(ZH),只是 Python 的一部分。在 Debian 和 Ubuntu 上：,is only a part of Python. On Debian and Ubuntu: )sudo apt install python3-venv"

.PHONY: help data lab run progress doctor bench

help:  ## list the targets
##zh help: 列出可以输入的命令
	@echo "$(if $(ZH),机器学习编译：一门能跑起来的课。可以输入：,Machine learning compilation, a course that runs. What you can type:)"
	@awk -v zh='$(filter zh,$(EDITION))' '/^[a-z-]+:.*## / {name = $$1; sub(":.*", "", name); names[++many] = name; sub(".*## ", ""); says[name] = $$0} /^##zh / && zh {name = $$2; sub(":", "", name); sub("^##zh [a-z-]*: ", ""); says[name] = $$0} END {for (i = 1; i <= many; i++) printf "%-15s %s\n", "  make " names[i], says[names[i]]}' $(THIS) $(filter-out $(THIS),$(MAKEFILE_LIST))

$(READY): requirements.txt
	@$(GATE)
	@$(PYTHON) -m tools.install $(VENV) $(if $(GPU),--gpu)
	@touch $(PINNED) $@

data: $(READY)  ## fetch the images and weights into data/, or say that the stand-in is used
##zh data: 下载图像和权重到 data/；没有网络时说明改用替代数据
	@$(PY) -c "" 2>/dev/null || { echo "$(if $(ZH),$(VENV) 里的 Python 不能运行（建它用的那个 Python 是不是删掉了？）：请删除这个文件夹 rm -r $(VENV)，再输入一次命令。,The Python in $(VENV) does not run (was the one that made it removed?): delete the folder, rm -r $(VENV), and type the command again.)"; exit 1; }
	@$(PY) -m data.fetch

lab: data  ## set everything up and open your notebooks, work/, in JupyterLab (NB=03 opens that one, FRESH=03 sets it back; GPU=1: torch with CUDA)
##zh lab: 装好一切，在 JupyterLab 里打开你自己的 notebook，即 work/zh/（NB=03 打开 03；FRESH=03 把 03 恢复原样；GPU=1 安装带 CUDA 的 torch）
	@$(PY) -m tools.student $(FRESH)
	@$(PY) -m tools.lab $(or $(NB),$(FRESH))

run: data  ## execute all notebooks, with times, and write them as HTML to build/html/ (NB="02 03": some)
##zh run: 从头到尾执行 notebook 并计时，写成 HTML，放到 build/html/zh/（NB="02 03" 只执行这几个）
	@$(if $(filter work,$(NOTEBOOKS)),$(PY) -m tools.student)
	@$(PY) -m tools.execute run $(NOTEBOOKS) $(NB)

progress: $(READY)  ## list your notebooks and what you have solved in each, as last saved
##zh progress: 列出你的各个 notebook，每个做对了几道练习（以上次保存的为准）
	@$(PY) -m tools.progress

doctor:  ## check this machine's setup and say how to fix what is wrong
##zh doctor: 检查这台机器的环境，每项一行，有问题的给出解决办法
	@for p in $(PY) $(PYTHON) python3; do $$p -c "import shutil, sys; assert sys.version_info > (3, 9)" 2>/dev/null \
		&& exec $$p -m tools.doctor; done; $(GATE)

# the benchmark's other contenders are installed next to the course's packages
$(BENCH): tools/requirements-bench.txt $(READY)
	@$(PY) -m tools.install $(VENV) $< || { echo "$(if $(ZH),不用 ONNX Runtime：,Without ONNX Runtime: )$(PY) -m tools.bench 4"; exit 1; }
	@touch $@

bench: $(BENCH) data  ## time the course's fastest model against ONNX Runtime, OpenVINO and PyTorch (ALL=1: batches of 1, 4, 16, 64)
##zh bench: 把课程里最快的模型与 ONNX Runtime、OpenVINO、PyTorch 放在一起计时（ALL=1：批大小 1、4、16、64）
	@$(PY) -m tools.bench $(if $(ALL),1 4 16 64,4)
