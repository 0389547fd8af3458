# Everything a reader needs, by name: `make help`. CMake and its presets do the work.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
MODEL ?= models/nano
QUESTION ?= What is the capital of France?
FUZZ_SECONDS ?= 60
SOAK_ROUNDS ?= 20

RELEASE := build/release
CACHALOT := $(RELEASE)/apps/cachalot
SOURCES = $(shell find src apps tests fuzz -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

.PHONY: help run test clients build dev gpu device tidy format format-check fuzz bench soak clean

help:
	@echo 'make run           install what is missing, build, ask the built-in model a question'
	@echo 'make test          install what is missing, build everything, run all tests'
	@echo 'make build         build the program: $(CACHALOT)'
	@echo 'make clients       test the server with clients: Python packages, the web page in a browser'
	@echo 'make dev           unit tests with AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make device        model, engine and backends alone, in binaries that need nothing but libc: build/device'
	@echo 'make gpu           the CUDA backend and all tests that need a Hopper GPU, on a machine that has one'
	@echo 'make tidy          clang-tidy over the whole project'
	@echo 'make format        clang-format in place; format-check only looks'
	@echo 'make fuzz          every parser under libFuzzer, FUZZ_SECONDS=$(FUZZ_SECONDS) each'
	@echo 'make bench         what the machine allows, and every part of MODEL=$(MODEL) against it'
	@echo 'make soak          long comparisons, then all tests SOAK_ROUNDS=$(SOAK_ROUNDS) times in random order'
	@echo 'make clean         remove build/'

run: build
	$(CACHALOT) run -m $(MODEL) "$(QUESTION)"

build: packages
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target cachalot

# ctest's closing line stands last, whatever it printed after it.
test: packages
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS)
	ctest --preset release --parallel $(JOBS) --output-log $(RELEASE)/ctest.log; status=$$?; \
	  grep 'tests passed' $(RELEASE)/ctest.log; exit $$status

# Beside the tests of `make test`: these fetch Python packages and a browser.
clients: build
	tools/install_packages.sh clients
	tools/python_environment.sh build/clients
	build/clients/bin/python -m pytest -q tests/clients

dev: packages
	cmake --preset dev
	cmake --build --preset dev --parallel $(JOBS)
	ctest --preset dev --parallel $(JOBS) --output-log build/dev/ctest.log; status=$$?; \
	  grep 'tests passed' build/dev/ctest.log; exit $$status

device: packages
	cmake --preset device
	cmake --build --preset device --parallel $(JOBS)

gpu: packages
	cmake --preset cuda
	cmake --build --preset cuda --parallel $(JOBS) --target cachalot gpu_tests
	ctest --preset gpu

tidy:
	tools/install_packages.sh tidy
	cmake --preset tidy
	cmake --build --preset tidy --parallel $(JOBS)

format:
	tools/install_packages.sh format
	clang-format -i $(SOURCES)

format-check:
	tools/install_packages.sh format
	clang-format --dry-run -Werror $(SOURCES)

fuzz:
	tools/install_packages.sh fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz --parallel $(JOBS) --target fuzz
	tools/run_fuzzers.sh build/fuzz/fuzz $(FUZZ_SECONDS)

bench: build
	$(CACHALOT) bench -m $(MODEL)

soak: packages
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS)
	cmake --build --preset release --parallel $(JOBS) --target soak
	ctest --preset release --parallel $(JOBS) --schedule-random --repeat until-fail:$(SOAK_ROUNDS)

clean:
	rm -rf build

.PHONY: packages
packages:
	@tools/install_packages.sh
