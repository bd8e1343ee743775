# Each target makes what it needs; the first one takes a minute, the next ones nothing.
# `make test ARGS="-k options"` passes arguments on to pytest, `JOBS=1` tests one file at a time.
# A build of pyenv gives way to the optimised Python of the system, if that is the same version.
PYTHON ?= $(or $(shell python3 tools/optimized_python.py 2> /dev/null),python3)
ARGS ?=
# Most tests wait for processes for two thirds of their time.
JOBS ?= 6
# A file stays with one process; tests/conftest.py has the order.
DIST = --dist loadfile --no-loadscope-reorder
bin := .venv/bin
# It makes the other environments, and has one of its own, which no change of setup.cfg touches.
uv := .venv-uv/bin/uv
# Interpreters are those of this machine; a peer that has none is left out, and its tests are skipped.
export UV_PYTHON_DOWNLOADS = never
peer := tools/peer_environment.py
finder := tools/editable_finder.py
peer_pythons := '>=3.10,<3.13'

# Images of containers often forbid bytecode; each process would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-extras ci without environments all-environments quick core check fix bench gpu-wheels faults programs docs deb \
	release coverage conformance-record clean test-bare mutants report

run: .venv/server.stamp
	$(bin)/zmqtriton demo $(ARGS)

# What a change must pass: all but what is marked `long` (loads, floods, faults by chance, whole matrices) and, of
# extras, all but `smoke`. With KIND other tests instead, which are below: `make test KIND=long`.
KIND ?= first

test: kind-$(KIND)

kind-first: environments
	$(bin)/python -m pytest -n $(JOBS) $(DIST) --tier=first --extras=smoke $(ARGS)

# The tests of extras, or of EXTRAS, such as `EXTRAS="jobs fleet"`, but what is long.
test-extras: environments
	$(bin)/python -m pytest -n $(JOBS) $(DIST) --tier=first $(ARGS) $(or $(EXTRAS:%=extras/zmqtriton_extras/%),extras)

# What is marked `long`, and nothing else.
kind-long: environments .venv/docs.stamp
	$(bin)/python -m pytest -n $(JOBS) $(DIST) --tier=long $(ARGS)

# What must pass before a change lands, and one part of what takes hours; `ARGS=all`: every part.
ci:
	.ci/run $(ARGS)

# All at once: most of their time is the network's.
environments:
	@$(MAKE) --no-print-directory --jobs all-environments

all-environments: .venv/test.stamp .venv-protobuf7/stamp .venv-pytriton/stamp .venv-clients/stamp .venv-clients/axe.stamp
	@:

# The files that have a mark.
marked = grep -rlE --include='test_*.py' '^(pytestmark|    pytest).*mark\.$(1)' tests extras | sort

# What has most to do with who models run as, with models of another user; for root.
kind-as-nobody: .venv/test.stamp
	ZT_STUB_USER=nobody $(bin)/python -m pytest -n $(JOBS) $(DIST) $(ARGS) $$($(call marked,as_nobody))

# Both commands on machines that have Python and make, and nothing else. As root, with mmdebstrap.
test-bare:
	python3 tools/bare_roots.py $(ARGS)

# The server on each CPython from 3.10 on that is here, installed there; ZT_PYTHONS has paths of others.
kind-pythons: .venv/test.stamp
	ZT_EACH_PYTHON=1 $(bin)/python -m pytest -q tests/system/pythons $(ARGS)

# What models call, and Triton's answers, with instances of each kind; tests/conformance/kinds.py has what differs.
kind-instances: .venv/test.stamp
	set -e; for kind in forks threads; do ZT_INSTANCES=$$kind $(bin)/python -m pytest -n $(JOBS) $(DIST) \
		tests/system/model_api tests/conformance/test_replay.py $(ARGS); done

# Files of large tensors, by servers that fill free blocks and name who reads them.
kind-poison: .venv/test.stamp
	ZT_POISON=1 $(bin)/python -m pytest -n $(JOBS) $(DIST) $(ARGS) $$($(call marked,large_tensors))

# Models of frameworks that are large; their environment takes 6 GB, most of it PyTorch's CUDA.
# A process for each, as models have: some do not bear others.
kind-frameworks: .venv-frameworks/stamp
	set -e; for file in extras/zmqtriton_extras/backends/tests/test_*.py $$($(call marked,frameworks)); do \
		.venv-frameworks/bin/python -m pytest -q $$file $(ARGS); done

# Real models, each from its README; what they need, and what they make, takes a GB.
kind-examples: .venv-examples/stamp
	.venv-examples/bin/python -m pytest -q -p no:cacheprovider --rootdir=examples --confcutdir=examples -c /dev/null examples $(ARGS)

# Several nodes of a Ray cluster on this machine; needs haproxy.
kind-fleet: .venv-ray/stamp
	test -e .venv-ray/left_out || .venv-ray/bin/python -m pytest -q extras/zmqtriton_extras/fleet/tests/system/test_serve.py $(ARGS)

# Clients of others, each method that they have; the newest releases.
kind-peers: .venv/test.stamp .venv-peers/stamp .venv-dynamo/stamp
	ZT_PEERS=1 $(bin)/python -m pytest -q tests/peers $(ARGS)

quick: .venv/test.stamp
	$(bin)/python -m pytest -n auto --quick -m "not system and not triton and not gpu and not long" $(ARGS)

# The core must not need the add-ons: its quick tests in a copy without them.
core: .venv/test.stamp
	$(bin)/python -m tools.core_alone $(ARGS)

# Nothing must need an extra: quick tests in a copy without those that ARGS names, or `all`.
without: .venv/test.stamp
	$(bin)/python -m tools.core_alone without $(ARGS)

check: .venv/test.stamp
	$(bin)/ruff format --check . && $(bin)/ruff check . && $(bin)/mypy

fix: .venv/test.stamp
	$(bin)/ruff format . && $(bin)/ruff check --fix .

# How fast the server is depends on how its Python was built: distributions' are optimised, pyenv's are not.
BENCH_PYTHON ?= $(firstword $(wildcard /usr/bin/python3) $(PYTHON))

bench: bench-$(or $(OF),run)

bench-run: .venv-bench/stamp
	.venv-bench/bin/python -m tests.bench.run $(ARGS)

# OF=growth: thousands of models, connections and streams.
bench-growth: .venv-bench/stamp
	.venv-bench/bin/python -m tests.bench.growth $(ARGS)

# What a machine without network has to be brought for `python -m tests.gpu`, into WHEELS, for the Python FOR.
WHEELS ?= build/wheels
FOR ?= 3.12
manylinux := $(patsubst %,--platform=manylinux%_x86_64,1 2014 _2_17 _2_24 _2_27 _2_28)

gpu-wheels: $(uv)
	.venv-uv/bin/python -m pip download --quiet --no-deps --only-binary=:all: --implementation=cp --python-version=$(FOR) \
		$(manylinux) --dest=$(WHEELS) --requirement=tests/gpu/wheels.txt

# How long what has random faults goes on.
MINUTES ?= 20

faults: faults-$(or $(OF),run)

# With SEED: random faults for MINUTES, in an order that the seed decides. Reads of free memory are found.
faults-run: .venv/test.stamp
	ZT_POISON=1 $(bin)/python -m tests.faults.$(if $(SEED),chaos --seed $(SEED) --minutes $(MINUTES),run) $(ARGS)

# OF=attacks: hostile clients beside honest ones.
faults-attacks: .venv/test.stamp
	$(bin)/python -m tests.faults.attacks --seed $(or $(SEED),1) --minutes $(MINUTES) $(ARGS)

# OF=documents: hostile documents by every door. MINUTES=0: all of them, in a table.
faults-documents: .venv/test.stamp
	$(bin)/python -m tests.faults.attacks.documents --seed $(or $(SEED),1) --minutes $(MINUTES) $(ARGS)

# OF=machines: as they are in production, two at a time; ARGS names some, --page writes their table into the page.
faults-machines: .venv/test.stamp
	$(bin)/python -m tests.faults.machines $(ARGS)

# OF=replacements: servers that are replaced, TIMES in each way, under clients of every protocol; ARGS names a way.
TIMES ?= 5

faults-replacements: .venv/test.stamp
	$(bin)/python -m tests.faults.replacements --times $(TIMES) $(ARGS)

# OF=fleet: requests lost when a part of a fleet is killed under load.
faults-fleet: .venv-ray/stamp
	.venv-ray/bin/python -m zmqtriton_extras.fleet.tests.kills $(ARGS)

# Random programs of models and calls, next to an oracle that knows each answer; ARGS=--kills kills processes.
programs: .venv/test.stamp
	$(bin)/python -m tests.faults.programs --seed $(or $(SEED),1) --minutes $(MINUTES) --calls 1000000 $(ARGS)

# How many faults are tried.
N ?= 200

# Small faults in the code that decides, N of them, one at a time: how many do tests notice?
mutants: .venv/test.stamp
	$(bin)/python -m tools.mutants --seed $(or $(SEED),1) --count $(N) $(ARGS)

# Sizes and shapes for a review: what is large, what is small and needed once; and the tests, room by room.
report: .venv/test.stamp
	$(bin)/python -m tools.report $(ARGS)
	$(bin)/python -m tools.suite

docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --strict

# A package for this release of Debian or Ubuntu; needs python3-venv.
deb: $(uv)
	rm -rf build/deb
	$(uv) build --quiet --out-dir build/deb
	deploy/debian/build.sh build/deb/zmqtriton-*.whl build/deb

# All files of a release below build/release, built twice, and tried in a bare root of Debian (RELEASE_DEBIAN);
# signed where RELEASE_KEY is an SSH key's file or a key of GnuPG. Needs root and mmdebstrap for the trial.
# WITHOUT=door,fleet leaves out these extras.
release: $(uv)
	python3 tools/release.py $(VERSION) $(WITHOUT:%=--without=%)

# Every process counts, those that are forked or killed in order too; takes twice as long as both tiers.
# What is left out is about what a process imports, and about SIGTERM in processes of models: coverage is there, too.
coverage: environments
	mkdir -p build/coverage
	$(bin)/coverage erase
	$(bin)/coverage run -m pytest -n $(JOBS) $(DIST) $(ARGS) \
		--deselect=tests/frontends/process/test_imports.py::test_processes_start_without_what_few_servers_need \
		--deselect=tests/stub/test_process.py::test_terminal_signals_do_not_end_it_but_end_what_the_model_starts
	$(bin)/coverage combine --quiet
	$(bin)/coverage report --format=total

# What starts real Triton: it is given `run REPOSITORY HTTP GRPC METRICS` and options.
TRITON ?= start_triton.sh
# A Python that has nvidia-pytriton, if that is to be asked too.
PYTRITON ?=

conformance-record: .venv/test.stamp
	$(bin)/python -m tests.conformance.record $(ARGS) $(TRITON)
	$(bin)/python -m tests.conformance.spans $(TRITON)
	$(bin)/python -m tests.conformance.record --ours
	$(if $(PYTRITON),$(bin)/python -m zmqtriton_extras.pytriton.tests.conformance.record $(PYTRITON))
	$(bin)/python -m zmqtriton_extras.pytriton.tests.conformance.record --ours

clean:
	rm -rf .venv .venv-uv .venv-protobuf7 .venv-pytriton .venv-clients .venv-bench .venv-frameworks .venv-ray .venv-peers .venv-dynamo .venv-machines build *.egg-info

$(uv):
	$(PYTHON) -m venv --clear .venv-uv
	.venv-uv/bin/python -m pip install --quiet uv

.venv/pyvenv.cfg: setup.cfg
	$(PYTHON) -m venv --clear .venv
	touch $@

.venv/server.stamp: .venv/pyvenv.cfg $(finder) | $(uv)
	$(uv) pip install --quiet --python .venv --editable .
	$(bin)/python $(finder)
	touch $@

.venv/test.stamp: .venv/pyvenv.cfg $(finder) | $(uv)
	$(uv) pip install --quiet --python .venv --editable '.[test,dev]'
	$(bin)/python $(finder)
	touch $@ .venv/server.stamp

.venv/docs.stamp: .venv/pyvenv.cfg $(finder) | $(uv)
	$(uv) pip install --quiet --python .venv --editable '.[docs]'
	$(bin)/python $(finder)
	touch $@ .venv/server.stamp

.venv-bench/stamp: setup.cfg | $(uv)
	$(uv) venv --quiet --clear --python $(BENCH_PYTHON) .venv-bench
	$(uv) pip install --quiet --python .venv-bench --editable '.[test]'
	touch $@

.venv-frameworks/stamp: setup.cfg | $(uv)
	$(uv) venv --quiet --clear --python $(PYTHON) .venv-frameworks
	$(uv) pip install --quiet --python .venv-frameworks --editable '.[test,openvino,torch]' tensorflow-cpu xgboost-cpu transformers
	touch $@

.venv-examples/stamp: setup.cfg $(wildcard examples/*/requirements.txt) | $(uv)
	$(uv) venv --quiet --clear --python $(PYTHON) .venv-examples
	$(uv) pip install --quiet --python .venv-examples --editable . pytest \
		$(patsubst %,--requirement %,$(wildcard examples/*/requirements.txt))
	touch $@

# Pythons that Ray has wheels for.
.venv-ray/stamp: setup.cfg | $(uv)
	$(PYTHON) $(peer) .venv-ray '>=3.10,<3.14' --editable '.[test,ray]'

# tritonclient holds protobuf below 7; the server must run with either. Two editable packages of one
# tree are not built at once.
.venv-protobuf7/stamp: setup.cfg $(finder) | $(uv) .venv/test.stamp
	$(uv) venv --quiet --clear --python $(PYTHON) .venv-protobuf7
	$(uv) pip install --quiet --python .venv-protobuf7 --editable . 'protobuf>=7'
	.venv-protobuf7/bin/python $(finder)
	touch $@

# NVIDIA's package, whose clients must work with our server; it has a numpy that newer Pythons do not.
.venv-pytriton/stamp: setup.cfg | $(uv)
	$(PYTHON) $(peer) .venv-pytriton $(peer_pythons) nvidia-pytriton==0.7.0

# What users ask a server with, in its newest releases but for PyTriton, whose API is that of one.
.venv-peers/stamp: setup.cfg | $(uv)
	$(PYTHON) $(peer) .venv-peers $(peer_pythons) nvidia-pytriton==0.7.0 'tritonclient[grpc,http]' openai

# NVIDIA Dynamo without a package that no index has, and the server below its worker.
.venv-dynamo/stamp: setup.cfg | $(uv)
	$(PYTHON) $(peer) .venv-dynamo $(peer_pythons) --editable . 'tritonclient[grpc]' uvloop pydantic pyyaml aiohttp msgspec \
		prometheus-client zstandard
	test -e .venv-dynamo/left_out || $(uv) pip install --quiet --python .venv-dynamo --no-deps \
		ai-dynamo==1.6.1 ai-dynamo-runtime==1.6.1 || { rm $@; false; }

# Clients of others, an environment for each. perf_analyzer is in the wheel of tritonclient 2.50; it wants CUDA's
# runtime, and libb64 of the system. JavaScript's clients where there is npm.
.venv-clients/stamp: setup.cfg | $(uv)
	$(PYTHON) $(peer) .venv-clients/kserve $(peer_pythons) kserve==0.21.0
	$(PYTHON) $(peer) .venv-clients/mlserver $(peer_pythons) mlserver==1.7.1
	$(PYTHON) $(peer) .venv-clients/perf_analyzer $(peer_pythons) --no-deps tritonclient==2.50.0 \
		nvidia-cuda-runtime-cu12==12.9.79
	if command -v npm > /dev/null; then \
		npm install --silent --prefix .venv-clients/node @grpc/grpc-js@1 @grpc/proto-loader@0 ws@8; fi
	test -e .venv-clients/kserve/left_out || touch $@

# What judges how accessible a page is, where there is npm.
.venv-clients/axe.stamp: | .venv-clients/stamp
	mkdir -p .venv-clients
	if command -v npm > /dev/null; then npm install --silent --prefix .venv-clients/node axe-core@4; fi
	touch $@
