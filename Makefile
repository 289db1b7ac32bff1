# The one list of commands. `make` alone prints it.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export CDK_DISABLE_CLI_TELEMETRY := true

.PHONY: help setup bench load demo test test-fast test-lowest test-localstack simulate hostile faults check format lock synth clean

help:  ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY)  ## Make the virtual environment .venv with everything in it

# uv where it is, else installed into the environment itself.
$(READY): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Fanfold needs Python 3.11 or newer; set PYTHON=… to name one." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "Python's venv module is missing (on Debian: apt-get install python3-venv)." >&2; exit 2; }
	@echo "Installing into $(VENV), which may take a minute …"
	@command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	  "$$uv" pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock && \
	  "$$uv" pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: $(READY)  ## Deploy to the embedded emulator, run a diamond, kill its worker, watch it finish
	@$(BIN)/fanfold demo

test: $(READY)  ## Every test, the emulator included
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

# The two test modules need a package that is not for the lowest versions.
LOWEST := build/lowest
test-lowest: $(READY)  ## Client, engine and service with the lowest versions that pyproject.toml allows
	@test -x $(LOWEST)/bin/python || $(BIN)/python -m venv $(LOWEST)
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	  "$$uv" pip install --quiet --python $(LOWEST)/bin/python --require-hashes -r requirements-lowest.lock && \
	  "$$uv" pip install --quiet --python $(LOWEST)/bin/python --no-deps -e .
	@$(LOWEST)/bin/python -m pytest -q -n 2 -m "not emulator" tests/unit/client tests/unit/commands tests/unit/engine \
	  tests/unit/adapters tests/unit/text tests/unit/tasks tests/unit/service tests/contract \
	  --ignore tests/unit/service/api/test_openapi.py --ignore tests/unit/service/api/test_hostile_calls.py

test-fast: $(READY)  ## Only the tests that need neither emulator nor CDK
	@$(BIN)/python -m pytest -q tests/unit tests/arch tests/contract -m "not emulator"

# 100,000 schedules should take about half an hour on two idle processors (40 ms each, extrapolated).
SEEDS ?= 2000
FIRST ?= 1
simulate: $(READY)  ## Play SEEDS schedules of faults from seed FIRST on, over all processors
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST)

# The seed draws whom to kill at random; when, real processes decide.
RUNS ?= 100
SEED ?= 1
faults: $(READY)  ## Kill, freeze, purge and restart under RUNS runs on the local stack, chances from SEED
	@FAULTS_RUNS=$(RUNS) FAULTS_SEED=$(SEED) $(BIN)/python -m pytest tests/e2e/test_faults.py tests/e2e/test_kills.py \
	  --durations=0

# Other examples each time; as `make test` has them they are the same each time.
TIMES ?= 100
hostile: $(READY)  ## Try TIMES as many hostile requests and documents as `make test` does
	@HOSTILE_TIMES=$(TIMES) $(BIN)/python -m pytest -n 2 tests/unit/service/api/test_hostile_calls.py \
	  tests/unit/engine/language/test_hostile_documents.py tests/unit/service/api/test_hostile_requests.py

# Without ENDPOINT: LocalStack's own SQS, S3 and Step Functions, in build/localstack, by a Python 3.13.
# With one: nothing is started or stopped there; what the tests deploy is deleted again. docs/development.md has more.
test-localstack: $(READY)  ## Queues, payloads, maps on the real LocalStack; ENDPOINT=URL [API=rest]: all in one that runs
ifeq ($(ENDPOINT),)
	@$(BIN)/python -m tests.support.localstack >/dev/null
	@FANFOLD_TEST_LOCALSTACK=1 $(BIN)/python -m pytest -q -m localstack tests/localstack \
	  tests/contract/test_work_queue.py tests/contract/test_blobs.py tests/contract/test_maps.py
else
	@FANFOLD_TEST_ENDPOINT=$(ENDPOINT) FANFOLD_TEST_API=$(API) $(BIN)/python -m pytest tests/integration
endif

# Counts are claimed and times only shown: `python -m loadtest --help` measures.
TARGET ?= memory
SCENARIOS ?= driver diamond open ramp storm team mixed soak
# What only memory can say, and needs no deployment.
REMEMBERED ?= history scale
# What means something only where calls to AWS are made.
EMULATED ?= cost engine kills coldstart workers peer-stepfunctions
load: $(READY)  ## The short version of every load test, against TARGET (memory, emulator or a URL), and a report
	@rm -rf build/load
	@play() { for scenario in $${@:2}; do echo "== $$scenario ($$1) ==" >&2; \
	    $(BIN)/python -m loadtest $$scenario --quick --target $$1 --out build/load/$$scenario || return; done; }; \
	  play $(TARGET) $(SCENARIOS) && play memory $(REMEMBERED) && play emulator $(EMULATED)
	@$(BIN)/python -m loadtest report build/load/* --out build/load-report

bench: $(READY)  ## Measure what metrics cost an invocation, and how long decisions take
	@$(BIN)/python -m tests.bench
	@$(BIN)/python -m tests.bench.decisions

check: $(READY)  ## Lint, formatting, types, import directions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY)  ## Format and sort imports
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .

lock: $(READY)  ## Pin every dependency again, by hash and without addresses
	@uv=$$(command -v uv || echo $(BIN)/uv); \
	  "$$uv" pip compile --quiet pyproject.toml --extra dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url -o requirements-dev.lock && \
	  "$$uv" pip compile --quiet pyproject.toml --extra service --extra test --resolution lowest-direct \
	    --python-version 3.11 --generate-hashes --no-emit-index-url -o requirements-lowest.lock && \
	  "$$uv" pip compile --quiet infra/layer.in --generate-hashes --no-emit-index-url --only-binary :all: \
	    --python-version 3.13 --python-platform aarch64-manylinux_2_28 -o requirements.lock && \
	  "$$uv" pip compile --quiet pyproject.toml --extra service --constraint requirements.lock \
	    --generate-hashes --no-emit-index-url --only-binary :all: \
	    --python-version 3.13 --python-platform aarch64-manylinux_2_28 -o requirements-worker.lock && \
	  "$$uv" pip compile --quiet tests/localstack/requirements.in --generate-hashes --no-emit-index-url \
	    --python-version 3.13 --exclude-newer 2026-03-15 -o tests/localstack/requirements.lock

synth: $(READY) node_modules/.package-lock.json  ## Synthesize the CloudFormation template into cdk.out
	@npx --no-install cdk synth --quiet

node_modules/.package-lock.json: package-lock.json
	@npm ci --silent --no-audit --no-fund

clean:  ## Remove what can be made again (not .fanfold: `fanfold down` does)
	@rm -rf cdk.out build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
