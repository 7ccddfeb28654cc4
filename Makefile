# Everything runs in a virtual environment of its own, made on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# LOCKED=1 installs the files that requirements/*.lock name, known by their hashes, and nothing else. CI sets it.
LOCKED ?=
PROTOS := $(wildcard streamer/uprotocol/proto/*.proto)
# What `make nightly` plays: so many records on that day and on each of the 7 days before, into that folder.
NIGHTLY ?= build/nightly
DAY ?= $(shell $(PYTHON) -c "import datetime as d; print(d.datetime.now(d.UTC).date() - d.timedelta(days=1))")
RECORDS ?= 60000
# Where `make sbom` writes the bill of materials.
SBOM ?= build/sbom.cdx.json

# Tests start hundreds of daemons: what they import is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-streamer test-jobs test-all test-long test-long-jobs test-compiled test-console test-lowest test-iceberg test-cluster test-packages wheels deb image chart lint bench soak profile bench-tests without bench-spark bench-fleet bench-driver interop fault upgrade nightly spark-zip proto lock screenshots sbom clean

demo: $(VENV)/.demo
	$(BIN)/python -m demo $(if $(PAIR),--pair) $(if $(SECONDS),--seconds $(SECONDS))

# Files with the longest waits come first (tests/conftest.py).
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
# What has a target of its own.
APART := not benchmark and not interop and not packages and not console and not iceberg and not cluster
TOGETHER := $(MAKE) --jobs 2 --output-sync=target --no-print-directory

# The tests of the jobs have a process of their own, with one Spark session for all of them. Each part prints what it has to say
# when it has ended.
test: $(VENV)/.dev
ifdef TESTS
	$(PYTEST) -n 4 -m '$(APART)' $(TESTS)
else
	$(TOGETHER) test-streamer test-jobs
endif

test-streamer: $(VENV)/.dev
	$(PYTEST) -n auto --maxprocesses 4 --ignore tests/spark

# What counts as a hang is longer: a JVM starts in the first test, and the cores are shared.
JOBS := $(BIN)/python -m pytest --timeout 300 tests/spark
test-jobs: $(VENV)/.dev
	$(JOBS)

# Everything: what `make test` runs, then what it leaves out. Two parts at a time; the longest begin first.
test-all: test
	$(TOGETHER) test-long test-packages test-long-jobs test-compiled test-console test-lowest

# The long tests, most of which wait for brokers and daemons, and the property tests once more with all of their examples. On a
# machine three times slower some of them take longer than what counts as a hang elsewhere.
test-long: $(VENV)/.dev
	HYPOTHESIS_PROFILE=$(or $(HYPOTHESIS_PROFILE),full) $(PYTEST) -n 4 --timeout 400 --ignore tests/spark -m '(long or hypothesis) and $(APART)'

test-long-jobs: $(VENV)/.dev
	$(JOBS) -m 'long and $(APART)'

# The compiled form, in a copy of the tree: a compiled module beside its source would hide every later change of it. What the C
# compiler can improve is no matter here, so it does not try. The tests of the compiled modules themselves, the flows and the crossings.
COMPILED := build/compiled
HERE := $(abspath $(BIN))
test-compiled: build/wheel/0/.made
	rm -rf $(COMPILED)
	mkdir -p $(COMPILED)
	cp -R $(filter-out build dist,$(wildcard *)) .dockerignore $(COMPILED)
	$(BIN)/python -m zipfile --extract build/wheel/0/*.whl $(COMPILED)
	cd $(COMPILED) && USTREAMER_COMPILE=1 PYTHONPATH=. $(HERE)/python -m pytest -n auto --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder $$($(HERE)/python -m tests.compiled) tests/flow tests/e2e/test_crossing.py

# A wheel with the hot path compiled, for this Python and this kind of machine. Needs a C compiler. Built in a copy of the tree, so
# that no module of another day is in it; without the path of this Python's own libraries.
SOURCES := setup.py build_backend.py pyproject.toml $(shell find streamer -name '*.py' -o -name '*.pyi')
LEVEL := $(or $(MYPYC_OPT_LEVEL),2)
WHEEL := build/wheel/$(LEVEL)
# What is built says which version it is; the copy has no repository to ask.
build/version: FORCE
	@mkdir -p build; version="$$($(PYTHON) build_backend.py)"; \
		[ "$$version" = "$$(cat $@ 2>/dev/null)" ] || echo "$$version" >$@
FORCE:

build/wheel/%/.made: $(VENV)/.dev $(SOURCES) build/version
	rm -rf build/wheel/$*
	mkdir -p build/wheel/$*/source
	cp -R streamer spark_jobs setup.py build_backend.py pyproject.toml README.md LICENSE build/wheel/$*/source
	cd build/wheel/$*/source && LDSHARED="$(or $(CC),cc) -shared" USTREAMER_COMPILE=1 MYPYC_OPT_LEVEL=$* \
		USTREAMER_VERSION="$$(cat $(CURDIR)/build/version)" \
		$(HERE)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir .. .
	touch $@

wheels: $(WHEEL)/.made
	mkdir -p dist
	cp $(WHEEL)/*.whl dist

# The Debian package, for the Debian and the platform that it is built on, whose Python has to be of the version of $(VENV)'s.
# Needs dpkg-dev and debhelper. LOCK_OF=trace: with what routing traces need.
DEB ?= build/deb
deb: $(WHEEL)/.made
	PIP=$(HERE)/pip COMPLETION="$(HERE)/streamer completion" \
		deploy/debian/build.sh $(WHEEL)/*.whl requirements/$(LOCK_OF).lock $(DEB)

# The image and the chart, with the version of this build. Need docker, and helm. LOCK_OF=trace: an image that can write traces.
image:
	docker build --build-arg LOCK=$(LOCK_OF) --build-arg VERSION="$$($(PYTHON) build_backend.py)" \
		--tag "ustreamer:$$($(PYTHON) build_backend.py image)" .

chart:
	helm package deploy/helm/ustreamer --destination dist --version "$$($(PYTHON) build_backend.py chart)" \
		--app-version "$$($(PYTHON) build_backend.py image)"

# Builds the packages with little effort, and installs, runs, upgrades and removes them. For root, on a machine of its own.
test-packages: build/wheel/0/.made
	$(MAKE) --no-print-directory deb MYPYC_OPT_LEVEL=0 COMPRESSION=1 DEB=build/test-deb
	DEB=build/test-deb $(BIN)/python -m pytest -m packages tests/packages

# The console in Chromium, before real daemons. By itself: a browser beside other tests takes long for everything.
test-console: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m console tests/console tests/unit/features

# The pictures of docs/features/console.md, taken with Chromium before a daemon that is at work.
screenshots: $(VENV)/.dev
	$(BIN)/python -m tests.console.screenshots

# The nightly jobs on the oldest Spark that they support, and with Apache Iceberg, for which there is none for a later one yet.
# Beside it runs the Spark of $(VENV). The py4j of that time leaves sockets open, which is no fault of ours. Needs mvn, which gets
# Iceberg's archives: without them the target fails.
OLDEST := build/spark-4.1
ICEBERG := build/iceberg
$(OLDEST)/.made: pyproject.toml
	rm -rf $(OLDEST)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[test]' 'pyspark[connect]==4.1.*' 'pyiceberg[pyarrow,sql-sqlite]>=0.12,<0.13'
	touch $@

$(ICEBERG)/.made: spark_jobs/iceberg_tables.py
	rm -rf $(ICEBERG)
	mkdir -p $(ICEBERG)
	@command -v mvn >/dev/null || { echo "make test-iceberg needs mvn, which gets the archives of Apache Iceberg"; exit 1; }
	for each in $$($(OLDEST)/bin/python -c "from spark_jobs.iceberg_tables import ARCHIVES; print(ARCHIVES.replace(',', ' '))"); do \
		mvn --quiet --batch-mode dependency:copy -Dartifact=$$each -DoutputDirectory=$(abspath $(ICEBERG)) || exit 1; done
	touch $@

$(ICEBERG)/.made: $(OLDEST)/.made

test-iceberg: $(VENV)/.dev $(OLDEST)/.made $(ICEBERG)/.made
	ICEBERG=$(abspath $(ICEBERG)) LATEST=$(HERE)/python $(OLDEST)/bin/python -m pytest --timeout 900 -o filterwarnings=ignore::ResourceWarning -m iceberg tests/iceberg

# The nightly jobs on a cluster of Spark's own, with its processes on this machine, and from and to an object store. Needs mvn,
# which gets Hadoop's connector for it: without that the target fails.
CLUSTER := build/cluster
S3A := org.apache.hadoop:hadoop-aws:3.5.0 software.amazon.awssdk:bundle:2.35.4 \
	software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1
$(CLUSTER)/.made:
	rm -rf $(CLUSTER)
	$(PYTHON) -m venv $(CLUSTER)
	$(CLUSTER)/bin/python -m pip install --quiet 'moto[server]>=5.1,<6'
	@command -v mvn >/dev/null || { echo "make test-cluster needs mvn, which gets the archives of hadoop-aws"; exit 1; }
	for each in $(S3A); do \
		mvn --quiet --batch-mode dependency:copy -Dartifact=$$each -DoutputDirectory=$(abspath $(CLUSTER))/jars || exit 1; done
	touch $@

test-cluster: $(VENV)/.dev $(CLUSTER)/.made
	$(BIN)/python deploy/spark/build_zip.py $(CLUSTER)/spark_jobs.zip
	CLUSTER=$(abspath $(CLUSTER)) $(BIN)/python -m pytest --timeout 3600 -m cluster tests/cluster

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m tests.figures
	$(BIN)/python -m tests.vulnerabilities

# The compiled form for the benchmark, as a wheel has it, in a copy of the tree. Without a C compiler there is none.
BENCH := build/bench/compiled
build/bench/.compiled: $(VENV)/.dev $(SOURCES)
	rm -rf $(BENCH)
	mkdir -p $(BENCH)
	cp -R streamer setup.py build_backend.py pyproject.toml README.md $(BENCH)
	@if command -v cc >/dev/null; then \
		cd $(BENCH) && USTREAMER_COMPILE=1 $(HERE)/python setup.py --quiet build_ext --inplace; \
	else echo "There is no C compiler (cc): only the pure form is measured."; fi
	touch $@

# One feature less, in a copy: lint, and all quick tests but those of that feature and of the documents, which name it. The commit
# chooses the feature, unless FEATURE does. TESTS=tests runs all that `make test` runs.
CHOSEN = $(or $(FEATURE),$(shell $(BIN)/python -m tests.without))
WITHOUT := $(CURDIR)/build/without
without: $(VENV)/.dev
	rm -rf $(WITHOUT)
	mkdir -p $(WITHOUT) && git ls-files -z | xargs -0 cp --parents -t $(WITHOUT)
	@[ ! -d .mypy_cache ] || cp -R .mypy_cache $(WITHOUT)
	@echo "Without $(CHOSEN)"
	cd $(WITHOUT) && export PYTHONPATH=$(WITHOUT) && $(HERE)/python -m tests.without $(CHOSEN) && git init -q && git add -A && \
		$(HERE)/ruff check . && $(HERE)/mypy && $(HERE)/lint-imports && $(HERE)/python -m tests.figures && \
		$(HERE)/python -m pytest -n auto --maxprocesses 4 --dist loadfile \
		$(or $(TESTS),tests/unit tests/flow tests/test_structure.py tests/test_figures.py)

bench: build/bench/.compiled
	$(BIN)/python -m tests.bench $(ARGS)

# Whether memory stays flat, for so many SECONDS in all (600).
soak: build/bench/.compiled
	$(BIN)/python -m tests.bench.soak $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

# Where the CPU time of a message goes, by stage and thread, with everything on.
profile: build/bench/.compiled
	$(BIN)/python -m tests.bench.profile $(ARGS)

# Tests that measure time or memory of a process: nothing else should run meanwhile.
bench-tests: $(VENV)/.dev
	$(BIN)/python -m pytest -m benchmark

bench-spark: $(VENV)/.dev
	$(BIN)/python -m tests.bench.spark $(ARGS)

# What a night costs beside the number of gateways.
bench-fleet: $(VENV)/.dev
	$(BIN)/python -m tests.bench.fleet $(ARGS)

bench-driver: $(VENV)/.dev
	$(BIN)/python -m tests.bench.driver $(ARGS)

# Peers and brokers that others have written, in other languages. What cannot be built here is skipped, with the reason; the
# first build takes a quarter of an hour. The summary at the end says what ran.
interop: $(VENV)/.dev
	$(BIN)/python -m tests.interop.build
	$(BIN)/python -m pytest -m interop -rsx --durations 1 tests/interop $(ARGS)

fault: $(VENV)/.dev
	$(BIN)/python -m tests.fault.run $(ARGS)

# A pair of streamers, upgraded one after the other under load: from the released version, which is checked out and installed
# below build/upgrade, to this one.
upgrade: $(VENV)/.dev
	$(BIN)/python -m tests.upgrade.run $(ARGS)

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

# The locks, after a change of dependencies. What is locked stays as it is unless it no longer fits; ARGS=--upgrade renews it.
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes
# The extras that image and Debian package always have: small, and a gateway cannot install them later.
SHIPPED := --extra otel
lock: $(VENV)/.dev
	$(LOCK) $(ARGS) --extra dev --output-file requirements/dev.lock pyproject.toml requirements/build.in
	$(LOCK) --no-annotate --constraint requirements/dev.lock $(SHIPPED) --output-file requirements/run.lock pyproject.toml
	$(LOCK) --no-annotate --constraint requirements/dev.lock $(SHIPPED) --extra trace --output-file requirements/trace.lock \
		pyproject.toml
	$(LOCK) --no-annotate --constraint requirements/dev.lock --output-file requirements/build.lock requirements/build.in
	$(LOCK) --no-annotate --constraint requirements/dev.lock --extra compile --output-file requirements/compile.lock \
		pyproject.toml requirements/build.in

# The lowest versions that pyproject.toml allows of what the streamer itself imports, and the tests of what imports them.
LOWEST := build/lowest
LOWEST_TESTS := tests/unit/config $(addprefix tests/unit/features/,api check otel pair pause utwin) tests/unit/transports tests/unit/tokens tests/unit/journal tests/flow
$(LOWEST)/.made: $(VENV)/.dev pyproject.toml
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(BIN)/uv pip compile --quiet --python $(LOWEST)/bin/python --resolution lowest-direct $(SHIPPED) --extra trace --extra completion \
		--output-file $(LOWEST)/requirements.txt pyproject.toml
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/requirements.txt \
		'pytest>=8,<10' 'pytest-xdist>=3,<4' 'pytest-asyncio>=1,<2' 'pytest-timeout>=2.3,<3' 'hypothesis>=6.100,<7' 'psutil>=6,<8' \
		'openapi-spec-validator>=0.9,<0.10' 'jsonschema>=4.26,<5' 'packaging>=25,<27' 'setuptools>=77,<85' 'aiomqtt>=2.5,<3' 'iotcore>=0.4,<0.5'
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --editable .
	touch $@

test-lowest: $(LOWEST)/.made
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile -m 'not long and $(APART)' $(LOWEST_TESTS)

# What the image contains, for whoever has to know: CycloneDX, JSON. LOCK_OF=trace: the image with traces.
LOCK_OF ?= run
sbom: $(VENV)/.dev
	mkdir -p $(dir $(SBOM))
	$(BIN)/cyclonedx-py requirements requirements/$(LOCK_OF).lock --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --spec-version 1.6 --validate --output-file $(SBOM)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),$(call locked,build))
	touch $@

$(VENV)/.demo: $(VENV)/.venv pyproject.toml
	$(call install,demo)
	touch $@

$(VENV)/.spark: $(VENV)/.venv pyproject.toml
	$(call install,spark$(COMMA)java)
	touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml $(if $(LOCKED),requirements/dev.lock)
	$(call install,dev)
	touch $@

# Locked, the environment always has everything: there is one lock for developers. uv installs it in a third of pip's CPU time,
# and pip does where uv cannot, for instance with an index that only pip has been told of. PySpark comes as source with many
# megabytes of Java archives: its wheel, which is unpacked at once, need not be compressed.
COMMA := ,
PIP_INSTALL := $(BIN)/python -m pip install --quiet
LOCK_OF_DEV := --require-hashes --no-build-isolation --requirement requirements/dev.lock
STORED := --config-settings-package 'pyspark:--build-option=bdist_wheel --compression=stored'
locked = $(PIP_INSTALL) --require-hashes --no-build-isolation --requirement requirements/$(1).lock
with_uv = $(PIP_INSTALL) $(1) && ($(BIN)/uv pip install --quiet --python $(BIN)/python $(STORED) $(2) || $(PIP_INSTALL) $(2))
install = $(if $(LOCKED),$(call with_uv,--require-hashes --constraint requirements/dev.lock uv,$(LOCK_OF_DEV)) && $(OURSELVES),\
	$(call with_uv,'uv>=0.13$(COMMA)<0.14',--editable '.[$(1)]'))
OURSELVES = $(PIP_INSTALL) --no-index --no-deps --no-build-isolation --editable .
