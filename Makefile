# Everything runs in a virtual environment of its own, made on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PROTOS := $(wildcard streamer/uprotocol/proto/*.proto)
# What `make nightly` plays: so many records on that day and on each of the 7 days before, into that folder.
NIGHTLY ?= build/nightly
DAY ?= $(shell $(PYTHON) -c "import datetime as d; print(d.datetime.now(d.UTC).date() - d.timedelta(days=1))")
RECORDS ?= 60000

# Tests start hundreds of daemons: what they import is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint bench bench-tests bench-spark fault nightly spark-zip proto clean

demo: $(VENV)/.demo
	$(BIN)/streamer demo $(if $(SECONDS),--seconds $(SECONDS))

# The tests of the jobs run by themselves: one Spark session for all of them, which uses both cores.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile $(or $(TESTS),--ignore tests/spark)
	$(if $(TESTS),,$(BIN)/python -m pytest tests/spark)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.structure

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench.run $(ARGS)

# Tests that measure time or memory of a process: nothing else should run meanwhile.
bench-tests: $(VENV)/.dev
	$(BIN)/python -m pytest -m benchmark

bench-spark: $(VENV)/.dev
	$(BIN)/python -m tests.bench.spark $(ARGS)

fault: $(VENV)/.dev
	$(BIN)/python -m tests.fault.run $(ARGS)

# The whole pipeline with nothing but pip: traces of a chain of three streamers with known faults, all tables, the report.
nightly: $(VENV)/.spark
	rm -rf $(NIGHTLY)/traces $(NIGHTLY)/tables
	$(BIN)/python -m spark_jobs.generate --output $(NIGHTLY)/traces --from $(DAY) --records $(RECORDS) \
		--history-days 7
	$(BIN)/python -m spark_jobs.nightly --input $(NIGHTLY)/traces --output $(NIGHTLY)/tables --slo config/slo.yaml \
		--lookback-days 36500 # DAY may be long ago
	@echo "Open the report: $(abspath $(NIGHTLY)/tables/report/report-$(DAY).html)"

# For spark-submit --py-files. Needs no virtual environment.
spark-zip:
	$(PYTHON) deploy/spark/build_zip.py dist/spark_jobs.zip

proto: $(VENV)/.dev
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTOS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.spark: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[spark,java]'
	touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@
