# The everyday targets: `make help` lists them. Each sets up what it needs through tools/bootstrap.
# Variables: PYTHON, JOBS, PYTEST_JOBS, BUILD, PREFIX, DESTDIR, HIPPOGRIFF_CUDA=ON|OFF, WERROR=ON|OFF,
# HIPPOGRIFF_DEMO_BYTES, FUZZ_SECONDS, BENCH_SECONDS.

PYTHON ?= python3
JOBS ?= $(shell nproc)
BUILD ?= build
PREFIX ?= /usr/local
HIPPOGRIFF_CUDA ?= ON
WERROR ?= $(if $(CI),ON,OFF)
FUZZ_SECONDS ?= $(if $(CI),3,20)
BENCH_SECONDS ?= 120
VENV := $(CURDIR)/.venv

export PYTHON HIPPOGRIFF_CUDA
export HIPPOGRIFF_VENV := $(VENV)

comma := ,
# Enough where nothing runs on a GPU and another build has compiled the same for all.
ONE_GPU := -gencode=arch=compute_90$(comma)code=sm_90
CONFIGURE := cmake -S . -G Ninja --log-level=NOTICE -DCMAKE_BUILD_TYPE=Release \
  -DHIPPOGRIFF_CUDA=$(HIPPOGRIFF_CUDA) \
  -DHIPPOGRIFF_CUDA_PROGRAM_OPTIONS=$(if $(CI),--Ofast-compile=max)
CONFIGURE_SANITIZED := $(CONFIGURE) -DHIPPOGRIFF_BENCH=OFF -DHIPPOGRIFF_WORKLOADS=OFF \
  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ $(if $(CI),-DHIPPOGRIFF_CUDA_TARGETS=$(ONE_GPU) \
  -DHIPPOGRIFF_CUDA_IMAGE_OPTIONS=--Ofast-compile=max)
# A third of a test's time is waiting: one more at a time than there are cores.
TEST_JOBS := $(shell echo $$(($(JOBS) + 1)))
# Machines of continuous integration are shared: there a test that failed gets a second chance, and is named.
CTEST := ctest --output-on-failure --no-tests=error --timeout 120 -j $(TEST_JOBS) --output-junit junit.xml \
  $(if $(CI),--repeat until-pass:2)
CHECKS := test slurm-test benchmarks without-cuda sanitize-address sanitize-thread fuzz lint model-quick docs torch
# Processes of pytest, which wait half of the time; 0: none beside itself. Tests that use a GPU fill its memory:
# one at a time.
PYTEST_JOBS ?= $(if $(wildcard /dev/nvidiactl),0,$(shell echo $$(($(JOBS) < 4 ? 2 * $(JOBS) : 8))))
PYTEST := -m pytest -n $(PYTEST_JOBS) --dist worksteal $(if $(CI),--reruns 1 -rR)
LIBRARY := $(abspath $(BUILD))/libhippogriff.so

# What the sanitizers leave out: arithmetic, what moves much by the ways of other tests, and of threads what
# processes do that are killed or stopped.
ARITHMETIC := RouterSimulation|RouterPromise
PROCESSES := node_test: (Crash|Making|ClientSlot|LegacyTest.(removing|whatever|a_lock|who_was))
PROCESSES := $(PROCESSES)|AtEveryStep|random_kills|AtomicFiles|crash_in
MUCH := RuntimeTest.sends_(are_mixed_with|to_several_destinations_do)|DestinationsTest.windows_mapped_beside
MUCH := $(MUCH)|Random.what_a_pool_is_refused
MUCH_FOR_THREADS := $(MUCH)|RuntimeTest.send_that_mixes_mapped

# Address space randomisation beyond what TSan expects makes it give up; setarch -R takes it away.
NO_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# The search for leaks guesses where libraries that are opened later have their thread-local memory, by
# what lies before it; where that is a program's own bytes it reads anywhere, and dies.
export ASAN_OPTIONS ?= detect_stack_use_after_return=1:strict_string_checks=1:intercept_tls_get_addr=0
export UBSAN_OPTIONS ?= print_stacktrace=1
# Threads that live to the end get a tenth of a second for races at exit, not a second in each test.
export TSAN_OPTIONS ?= die_after_fork=0:atexit_sleep_ms=100:suppressions=$(CURDIR)/tools/tsan.supp

# Several targets build in the same folder; the builds are parallel in themselves.
.NOTPARALLEL:
.PHONY: all configure test test-cpp test-python slurm-test torch check without-cuda
.PHONY: sanitize-address sanitize-thread fuzz lint
.PHONY: format model model-quick docs demo benchmarks bench reproduce install wheel clean help

all: configure ## Build the library, the programs and the Python environment
	@cmake --build $(BUILD) -j $(JOBS) --target hippogriff programs

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

configure:
	@tools/bootstrap build
	@$(CONFIGURE) -B $(BUILD) -DHIPPOGRIFF_WERROR=$(WERROR)

demo: all ## LU decomposition as the papers print it, then a real file both ways
	@BUILD=$(abspath $(BUILD)) tools/demo

test: test-cpp test-python ## All tests, C++ and Python

test-cpp: configure ## The C++ tests
	@cmake --build $(BUILD) -j $(JOBS) --target hippogriff programs tests
	@cd $(BUILD) && $(CTEST)

test-python: all ## The Python tests and those of the tools
	@tools/bootstrap test
	@HIPPOGRIFF_LIBRARY=$(LIBRARY) $(VENV)/bin/python $(PYTEST) --junitxml=$(BUILD)/junit-python.xml

slurm-test: all ## Jobs of a real Slurm, where this is run by root
	@tools/bootstrap slurm
	@HIPPOGRIFF_LIBRARY=$(LIBRARY) $(VENV)/bin/python -m pytest -rs $(if $(CI),--reruns 1) contrib/slurm \
	  --junitxml=$(BUILD)/junit-slurm.xml

# Torch is looked for in $(VENV)/torch, where bootstrap puts it, then in $(VENV). Where it is in neither, all skip,
# unless bootstrap fails; where it is, something must pass.
torch: all ## The Python tests and the docs' examples that need torch, with Debian's (152 MB)
	@tools/bootstrap torch
	@PYTHONPATH=$(VENV)/torch HIPPOGRIFF_LIBRARY=$(LIBRARY) $(VENV)/bin/python -m pytest -m torch python/tests \
	  -rs$(if $(CI),R --reruns 1) --junitxml=$(BUILD)/junit-torch.xml
	@! PYTHONPATH=$(VENV)/torch $(VENV)/bin/python -W ignore -c 'import torch' 2>/dev/null || \
	  $(VENV)/bin/python tools/count_tests.py $(BUILD)/junit-torch.xml >/dev/null || \
	  { echo "make torch: there is a torch, and no test passed with it" >&2; exit 1; }

check: $(CHECKS) ## Tests, benchmarks built, sanitizers, fuzzers, linters, docs

# Compiled quickly: what it asks is whether it compiles, each file by itself, links and starts. The later -D counts.
without-cuda: ## The library and some programs as HIPPOGRIFF_CUDA=OFF builds them, tried
	@HIPPOGRIFF_CUDA=OFF tools/bootstrap check
	@$(CONFIGURE) -B $(BUILD)-no-cuda -DHIPPOGRIFF_CUDA=OFF -DHIPPOGRIFF_WERROR=$(WERROR) \
	  -DHIPPOGRIFF_TESTS=OFF -DHIPPOGRIFF_BENCH=OFF -DHIPPOGRIFF_UNITY=OFF \
	  -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DCMAKE_CXX_FLAGS_DEBUG=-O0
	@cmake --build $(BUILD)-no-cuda -j $(JOBS) --target hippogriff quickstart_c quickstart_cpp lud
	@tools/try-without-cuda $(BUILD)-no-cuda $(VENV)/bin/python

sanitize-address: ## The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/bootstrap check
	@$(CONFIGURE_SANITIZED) -B $(BUILD)-address -DHIPPOGRIFF_SANITIZE=address
	@cmake --build $(BUILD)-address -j $(JOBS)
	@cd $(BUILD)-address && $(CTEST) --exclude-regex '$(ARITHMETIC)|$(MUCH)'

sanitize-thread: ## The C++ tests that have threads under ThreadSanitizer
	@tools/bootstrap check
	@$(CONFIGURE_SANITIZED) -B $(BUILD)-thread -DHIPPOGRIFF_SANITIZE=thread
	@cmake --build $(BUILD)-thread -j $(JOBS)
	@cd $(BUILD)-thread && $(NO_ASLR) $(CTEST) --exclude-regex '$(ARITHMETIC)|$(PROCESSES)|$(MUCH_FOR_THREADS)'

fuzz: ## Every fuzzer for FUZZ_SECONDS
	@tools/bootstrap check
	@$(CONFIGURE_SANITIZED) -B $(BUILD)-address -DHIPPOGRIFF_SANITIZE=address
	@cmake --build $(BUILD)-address -j $(JOBS) --target fuzzers
	@JOBS=$(JOBS) tools/fuzz $(BUILD)-address $(FUZZ_SECONDS) $(VENV)/bin/python

# In continuous integration the library alone is analysed, several files at a time as they are compiled.
lint: configure ## Formatting, static analysis, types, spelling, project rules
	@tools/bootstrap check
	@$(VENV)/bin/python tools/lint.py --build $(BUILD) $(if $(CI),--own) --jobs $(JOBS)

format: ## Rewrite the sources as clang-format and ruff want them
	@tools/bootstrap check
	@$(VENV)/bin/python tools/lint.py --fix

model: ## The protocols of node and arrays by spin (8 minutes, 4 GB)
	@tools/bootstrap check
	@tools/model $(BUILD)

model-quick: ## The same with smaller models (half a minute)
	@tools/bootstrap check
	@tools/model $(BUILD) quick

docs: ## The site, in $(BUILD)/site; warnings are errors
	@tools/bootstrap docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --site-dir $(abspath $(BUILD))/site

benchmarks: configure ## Build the benchmarks
	@cmake --build $(BUILD) -j $(JOBS) --target benchmarks

bench: all benchmarks ## The benchmarks, side by side, within BENCH_SECONDS
	@tools/bootstrap bench
	@BUILD=$(abspath $(BUILD)) PATH="$(VENV)/bin:$$PATH" bench/run_all.sh $(BENCH_SECONDS)

reproduce: all ## The papers' experiments, tiny, and the report; goes on where it was interrupted
	@tools/bootstrap bench
	@HIPPOGRIFF_LIBRARY=$(LIBRARY) $(VENV)/bin/python -m hippogriff reproduce --quick \
	  --out $(BUILD)/reproduce $(if $(CI),--repetitions 1)

install: all ## Install library, headers, pkg-config and CMake files below PREFIX
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

wheel: all ## The Python package with the library in it, in dist/
	@$(VENV)/bin/python tools/make_wheel.py --library $(LIBRARY) --output dist

clean: ## Remove what was built, not .venv
	rm -rf $(BUILD) $(BUILD)-address $(BUILD)-thread $(BUILD)-no-cuda dist python/*.egg-info
