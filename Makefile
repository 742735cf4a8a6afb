# `make bench` and `make test` need nothing but this checkout and Python 3.11 or newer; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# hundreds of processes that tests and benchmarks start would each compile the package anew
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
VENV ?= .venv
RUNS ?= runs
RESULTS ?= results
RANKS ?= 1 2
REPEATS ?= 3
PRECISION ?= 3%
BUDGET ?= 215s
GRPO_BUDGET ?= 125s
GPU_BUDGET ?= 25m
WHEELS ?= wheels
PYTHON_VERSION ?= 3.12
INPUTS ?= 100000
SEED ?= 1
FUZZ_SECONDS ?= 3600
TRIES ?= 100
MINUTES ?= 60
PUBLISHED ?= docs/published
FIT_DATE ?= $(shell date +%F)

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What is installed beside the engines, of a lock of its own.
BESIDE := vllm trl tune docs
# Trainers whose packages cannot live with the engines': `make NAME` installs requirements/NAME.lock into .venv-NAME.
# `data` is one of them because DeepSpeed and transformers import what they find of MLflow and polars, whose threads keep ranks
# from being forked.
OVERLAYS := trl-ppo trlx verl openrlhf data
OVERLAY_STAMPS := $(OVERLAYS:%=$(VENV)-%/.installed)
# its lock is for these machines; on others its tests are skipped
VLLM_WHERE_IT_IS := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),$(VENV)/.vllm)
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
INSTALL := $(BIN)/python $(PIP)
# Rows take turns by iteration. Starts are added where ratios are still wide; both budgets together keep `make bench` below six
# minutes on two cores.
BENCH_MEASURE = $(BACKENDS) $(RANKS:%=--ranks %) --start fork --repeats $(REPEATS) --until $(PRECISION) \
	--difference 5% --warmup 2 --with-suspect
# short, so that many iterations fit
GRPO_LENGTHS := lognormal:mean=8,sigma=0.6,cap=16,at-cap=0.1
GPU_MEASURE = --workload gpu-one --ranks 1 --device cuda --dtype bf16 --budget $(GPU_BUDGET)
BACKENDS := --backend deepspeed --backend megatron

# What a GPU machine's own Python may lack; the versions are those of the lock files.
WHEEL_NAMES := annotated-doc annotated-types certifi charset-normalizer docker einops hjson idna markdown-it-py mdurl \
	iniconfig megatron-core msgpack msgspec ninja nvidia-ml-py packaging pluggy py-cpuinfo pydantic pydantic-core pygments \
	pytest pytest-timeout requests rich shellingham tqdm typer typing-extensions typing-inspection urllib3
WHEEL_PLATFORMS := $(foreach glibc,2_28 2_27 2_26 2_24 2_17 2_12 2_5,--platform manylinux_$(glibc)_x86_64) \
	--platform manylinux2014_x86_64

.PHONY: help check size turns-check data data-lock bench tune tune-lock vllm vllm-lock trl trl-lock trl-ppo trl-ppo-lock trlx trlx-lock verl verl-lock openrlhf openrlhf-lock test test-all test-nightly test-trlx fuzz bench-gpu test-gpu bench-self stats-check planner-fit planner-check tune-check wheels wheelhouse lock image-locks clean docs docs-lock page-vendor tasks faults soak audit audit-lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {count = split($$1, names, " "); \
		for (i = 1; i <= count; i++) printf "  make %-15s %s\n", names[i], $$2}' $(firstword $(MAKEFILE_LIST))

# measure(suite command, arguments of `suite run`, runs folder, results folder, arguments of another `suite run`, those of
# `suite report`): a failed run is a row of the report, so the report is written all the same and the exit code kept.
define measure
	@code=0; measured() { "$$@" --runs "$(3)" || { code=$$?; [ $$code -le 1 ] || exit $$code; }; }; \
	measured $(1) run $(2); $(if $(5),measured $(1) run $(5);) \
	mkdir -p "$(4)"; $(1) report "$(3)" -o "$(4)/report.md" $(6); exit $$code
endef

bench: $(STAMP) ## measure both backends on this machine's CPU and write results/report.md
	$(call measure,$(BIN)/suite,--size 1M --size 3M --workload cpu --iterations 28 $(BENCH_MEASURE) --budget $(BUDGET),$(RUNS),$(RESULTS),--size 1M-llama --workload cpu-grpo --lengths $(GRPO_LENGTHS) --iterations 24 $(BENCH_MEASURE) --budget $(GRPO_BUDGET),--with-suspect)

vllm: $(VENV)/.vllm ## install vLLM for a CPU beside the engines, for --generation vllm (Linux on x86-64)
data: $(VENV)-data/.installed ## install what results are handed to (polars, TensorBoard, MLflow, W&B) into an environment beside the engines'
tune: $(VENV)/.tune ## install what suite tune searches with beside the engines
trl: $(VENV)/.trl ## install TRL beside the engines, for the backends trl-grpo and trl-rloo
trl-ppo: $(VENV)-trl-ppo/.installed ## install TRL 1.12.0, the last with PPO, into an environment beside the engines'
trlx: $(VENV)-trlx/.installed ## install what trlx needs beside the engines; its source is named in SUITE_TRLX_SOURCE
verl: $(VENV)/.vllm $(VENV)-verl/.installed ## install verl into an environment beside the engines', whose vLLM it runs (Linux on x86-64)
openrlhf: $(VENV)-openrlhf/.installed ## install OpenRLHF and Ray into an environment beside the engines'

# Lanes of tests, each with what it needs (tests/README.md).
LANE = @$(BIN)/python -m tests.lanes

check: $(STAMP) ## lint, types, and the tests of what changed since main: three minutes
	$(LANE) check $(PYTEST_ARGS)

test: $(STAMP) ## lint, types and all tests that need no engine, browser or further package: ten minutes on two cores
	$(LANE) test $(PYTEST_ARGS)

test-all: $(STAMP) $(VLLM_WHERE_IT_IS) $(VENV)/.trl $(VENV)-data/.installed build/axe/axe.min.js ## what CI runs: everything, with container runtime, Slurm and Kubernetes of the tests' own
	$(LANE) all $(PYTEST_ARGS)

test-nightly: $(STAMP) $(VLLM_WHERE_IT_IS) $(VENV)/.trl $(OVERLAY_STAMPS) ## new examples, all cases, whole trainers, then fuzz and faults: hours
	@code=0; for lane in properties thorough trainers; do $(BIN)/python -m tests.lanes $$lane $(PYTEST_ARGS) || code=1; done; \
	$(MAKE) fuzz || code=1; $(MAKE) faults FAULT_SECONDS=$(or $(FAULT_SECONDS),3600) || code=1; exit $$code

test-trlx: $(STAMP) $(VENV)-trlx/.installed ## real trlx ranks on the checkout of trlx that SOURCE names
	@[ -n "$(SOURCE)" ] || { echo "name a checkout of trlx: make test-trlx SOURCE=path (docs/trainers/trlx.md)"; exit 2; }
	@SUITE_TRLX_SOURCE="$(abspath $(SOURCE))" $(BIN)/python -m tests.lanes trlx $(PYTEST_ARGS)

turns-check: $(STAMP) ## what turns by iteration promise, measured: A/A and a loss of 3 % at the gate, turns against runs alone
	@$(BIN)/python -m benchmarks.turns_tries

size: $(STAMP) ## lines and files of each room, beside its budget, and the change since the last release
	@$(BIN)/python -m tests.lanes.size

fuzz: $(STAMP) ## INPUTS (100000) changed inputs for every parser, or for those in TARGETS, within FUZZ_SECONDS each; fails on a finding
	@$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) --seed $(SEED) --seconds $(FUZZ_SECONDS) $(TARGETS)

# Tries add up in build/faults/tries.jsonl: the same command goes on where the last one ended.
faults: $(STAMP) ## TRIES (100) of each fault at random moments of real runs, for at most FAULT_SECONDS; write docs/reliability.md
	@$(BIN)/python -m tests.faults.run --tries $(TRIES) --seed $(SEED) $(FAULT_SECONDS:%=--seconds %) \
		$(if $(LAUNCHERS),--launchers $(LAUNCHERS)) $(if $(FAULTS),--faults $(FAULTS))

soak: $(STAMP) ## a plan of 1,000 runs, MINUTES (60) of real ones and bundles of 1,024 ranks; write docs/reliability.md
	@$(BIN)/python -m tests.faults.soak --minutes $(MINUTES)

# The help of every command is saved first, as an installation does: this checkout may have changed since its own.
bench-self: $(STAMP) ## measure what the suite itself costs; write docs/self-benchmarks.md
	@$(BIN)/python -m suite.cli.saved_help
	@$(BIN)/python -m benchmarks

# gpu_site: the wheels of the folder, where there is one, before the packages that PYTHON has
define gpu_site
	@if [ -d "$(WHEELS)" ]; then rm -rf build/site; \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target build/site "$(WHEELS)"/*.whl; fi
endef
GPU_PYTHON = PYTHONPATH="$(CURDIR)/build/site:$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
GPU_SUITE = $(GPU_PYTHON) -m suite

bench-gpu: ## measure on one CUDA device with the torch that PYTHON has; fetches nothing
	@$(PYTHON) -c 'import torch' 2>/dev/null || { echo "$(PYTHON) cannot import torch; name one that can: make bench-gpu PYTHON=/opt/venv/bin/python"; exit 2; }
	$(gpu_site)
	@$(GPU_SUITE) doctor
	@$(GPU_SUITE) run --ladder gpu-one $(BACKENDS) $(GPU_MEASURE) --repeats $(REPEATS) --runs "$(RUNS)-gpu" || [ $$? -eq 1 ]
	@echo "6.7B with Megatron's optimizer offloaded needs about 95 GiB of device memory; where that is too much it is left out:"
	@$(GPU_SUITE) run --size 6.7B --offload-optimizer --backend megatron $(GPU_MEASURE) --repeats 1 --runs "$(RUNS)-gpu" || [ $$? -le 2 ]
	$(call measure,$(GPU_SUITE),--size 6.7B --offload-optimizer --backend deepspeed $(GPU_MEASURE) --repeats 1,$(RUNS)-gpu,$(RESULTS)-gpu)

# The tests import nothing of tests/conftest.py, which needs more than a GPU machine has.
test-gpu: ## the tests that need a CUDA device, with the torch that PYTHON has; fetches nothing
	$(gpu_site)
	@$(GPU_PYTHON) -m tests.gpu.look || { code=$$?; \
		echo "make test-gpu needs a CUDA device, a Python with torch (make test-gpu PYTHON=/opt/venv/bin/python), and for what"; \
		echo "else it lacks the folder that make wheels fills"; exit $$code; } >&2
	@SUITE_TEST_GPU_REQUIRED=1 $(GPU_PYTHON) -m pytest -m gpu --confcutdir tests/gpu --durations 0 tests/gpu $(PYTEST_ARGS)

stats-check: $(STAMP) ## simulate what intervals and verdicts promise, print the tables of docs/results/stats-check.md; exits 1 outside the bounds
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.stats_check $(STATS_CHECK_ARGS)

planner-fit: $(STAMP) ## fit the planner on published rows (PUBLISHED=folder) and rewrite docs/planner_scores.md
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.planner.refit $(PUBLISHED) --out manifests/planner_parameters.json \
		--page docs/planner_scores.md --excerpt docs/planner.md --date $(FIT_DATE)

planner-check: $(STAMP) ## compare the planner with published rows (PUBLISHED=folder): every row, then whole sources left out
	@$(BIN)/python -m suite plan --check $(PUBLISHED)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.planner.refit $(PUBLISHED) --page docs/planner_scores.md --excerpt docs/planner.md

tune-check: $(VENV)/.tune ## replay the search of suite tune on published sweeps and a study, rewrite docs/results/tune-check.md
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.tune_check $(PUBLISHED) --study docs/results/tuned/1M-llama.suite.zip --write docs/results/tune-check.md

docs: $(VENV)/.docs ## build the documentation site into build/docs; open build/docs/index.html
	@$(BIN)/python -m mkdocs build --quiet --strict

tasks: ## compare, gate and buy by the commands of their pages alone, each in a fresh clone, in 20 minutes
	@$(PYTHON) -m tests.tools.tasks

# Locks that pip reads; the source of trlx is a commit. Exit code 3 of the script: nobody could be asked.
AUDITED = $(sort $(filter-out %/trlx-source.lock,$(wildcard requirements/*.lock requirements/images/*.lock)))
audit: $(VENV)-audit/.installed ## look all pinned packages up among known vulnerabilities; needs the network's advisory service
	@$(VENV)-audit/bin/python requirements/audit.py $(AUDITED)

wheels: $(STAMP) ## fetch into wheels/ what bench-gpu and test-gpu need on a machine that can fetch nothing
	@mkdir -p build $(WHEELS)
	@for name in $(WHEEL_NAMES); do grep -hoE "^$$name==[^ ]+" requirements/*.lock | sort -u; done > build/wheels.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--implementation cp --python-version $(PYTHON_VERSION) $(WHEEL_PLATFORMS) -d $(WHEELS) -r build/wheels.txt
	@DS_BUILD_OPS=0 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		-w $(WHEELS) "$$(grep -oE '^deepspeed==[^ ]+' requirements/cpu.lock)"

page-vendor: ## fetch what pages draw with again (npm), at the versions and digests of suite/report/page/vendor/vendor.json
	@suite/report/page/vendor/fetch
build/axe/axe.min.js: suite/report/page/vendor/vendor.json
	@suite/report/page/vendor/fetch axe-core

# What is compiled from what, and why: requirements/compile.sh.
lock image-locks docs-lock audit-lock vllm-lock trl-lock tune-lock data-lock trl-ppo-lock trlx-lock openrlhf-lock verl-lock: ## compile locks again (`lock` those of driver and engines, by pip-tools where pip finds a CPU build of torch; the others by uv)
	@PYTHON="$(PYTHON)" requirements/compile.sh $@

wheelhouse: $(STAMP) ## fill build/image with what a CPU image is built from, so that the build fetches nothing
	@$(BIN)/suite images wheelhouse

clean: ## remove everything that make made but the measured runs
	@rm -rf .venv .venv-audit $(OVERLAYS:%=.venv-%) results results-gpu wheels build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The install is done when the stamp is there; changed pins install again. Compiled once and on all cores, because ranks
# started together would each compile what they import; models that nobody asks for are left out, and some packages
# carry files that do not compile. With TORCH=cpu the CPU build of torch is installed first, so that the lock finds its
# torch there and fetches no CUDA package; where pip finds no CPU build it ends there.
define cpu_torch
	@$(INSTALL) --no-deps $(TORCH_INDEX:%=--index-url %) "$$(grep -oE '^torch==[0-9.]+' requirements/cpu.lock)+cpu" || { \
		echo "pip finds no CPU build of this torch. PyTorch's install page prints, for Linux, pip and CPU, the index that has"; \
		echo "it: make $(MAKECMDGOALS) TORCH=cpu TORCH_INDEX=URL"; exit 2; }
endef

OR_SAY = || { echo "pip could not install what requirements/ pins (above). It needs a network, or an index or a folder of wheels in" \
	"pip's own configuration"; exit 2; }

$(BESIDE:%=$(VENV)/.%): $(VENV)/.%: $(STAMP) requirements/%.lock
	@echo "Installing $* into $(VENV): once, two minutes at most ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements/$*.lock
	@touch $@

$(VENV)-trl-ppo/.installed: $(VENV)/.trl  # has what this TRL needs too
# vLLM generates for it, and Accelerate and Datasets are TRL's.
$(VENV)-openrlhf/.installed: $(VENV)/.vllm $(VENV)/.trl

# Its own packages are found before those of the engines' environment, which it names in a .pth file. Installed before that
# is there, so that pip sees its own alone.
$(OVERLAY_STAMPS): $(VENV)-%/.installed: $(STAMP) requirements/%.lock
	@echo "Installing $* into $(VENV)-$*, beside $(VENV): once, a minute or two ..."
	@$(BIN)/python -m venv --clear $(VENV)-$*
	@$(VENV)-$*/bin/python $(PIP) --no-deps --require-hashes -r requirements/$*.lock
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
		$(BIN)/python -c "$$packages" >"$$($(VENV)-$*/bin/python -c "$$packages")/engines.pth"
	@touch $@

$(STAMP): pyproject.toml requirements/driver.lock requirements/cpu.lock
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "suite needs Python 3.11 or newer; if it is not on the PATH, name it: make PYTHON=/path/to/python3"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "suite needs the venv module of Python; install it with: apt-get install python3-venv"; exit 2; }
	@[ -z "$(TORCH)" ] || [ "$(TORCH)" = cpu ] || { \
		echo "TORCH=$(TORCH) is not known; TORCH=cpu has pip take the CPU build of torch"; exit 2; }
	@echo "Installing into $(VENV): once, 2 to 7 minutes ..."
	@$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),$(cpu_torch))
	@$(INSTALL) --no-deps --require-hashes -r requirements/driver.lock $(OR_SAY)
	@DS_BUILD_OPS=0 $(INSTALL) --no-build-isolation -r requirements/cpu.lock $(OR_SAY)
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@[ -e $(VENV)/.vllm ] || $(BIN)/python -m pip check --disable-pip-version-check  # vLLM's own list is not followed
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/transformers/models/' $(VENV)/lib || true
	@touch $(STAMP)

$(VENV)-audit/.installed: requirements/audit.lock
	@echo "Installing pip-audit into $(VENV)-audit: once, less than a minute ..."
	@$(PYTHON) -m venv --clear $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/audit.lock
	@touch $@
