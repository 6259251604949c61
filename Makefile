# Targets for people and for CI. `make help` lists them.
SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-builtin-rules

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

GO    ?= go
TOOL  := $(GO) tool -modfile=.ci/tools/go.mod
# The race detector needs a C compiler; everything else needs Go alone.
RACE  := $(if $(shell command -v $${CC:-cc} gcc clang 2>/dev/null),-race)
# Time for each fuzz target, runs of each benchmark.
T     ?= 30s
COUNT ?= 1
PKGS  ?= ./...

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/mcpbridge: one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/mcpbridge ./cmd/mcpbridge

.PHONY: run
run: build ## build, start bridge and demo provider, call a tool, print the URLs, stay up
	@exec bin/mcpbridge serve --open --demo $(ARGS)

.PHONY: test
test: deps ## run every test, with the race detector where a C compiler is present
	@$(if $(RACE),,echo 'no C compiler: testing without the race detector' >&2)
	$(GO) test $(RACE) $(PKGS)

.PHONY: race
race: deps ## run every test uncached and shuffled, with the race detector
	$(GO) test -race -count=1 -shuffle=on $(PKGS)

# Packages of the JavaScript folders, by lock file, once per lock file.
LOCKS   := $(wildcard $(addsuffix /package-lock.json,e2e conformance clients/js))
MODULES := $(LOCKS:package-lock.json=node_modules/.package-lock.json)

.PHONY: deps
deps: $(MODULES) ## install what the tests need (npm packages by lock file)

%/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { echo '$*: npm is missing; install Node.js 20 or newer' >&2; exit 1; }
	npm --prefix $* ci --no-audit --no-fund --ignore-scripts
	@touch $@

.PHONY: fuzz
fuzz: ## fuzz every target for T (default 30s each): make fuzz T=5m
	@for pkg in $$($(GO) list $(PKGS)); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "fuzz $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(T) $$pkg; \
		done; \
	done

.PHONY: bench
bench: ## run the benchmarks into bench-COMMIT.txt, and the load where its harness is: make bench COUNT=10
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) $(PKGS) | tee bench-$(shell git rev-parse --short HEAD 2>/dev/null || echo local).txt
	$(if $(BENCH),$(MAKE) load)

# The load harness, where its sources are: make load BENCH=dir.
BENCH ?= $(wildcard ../shared/bench)

.PHONY: load
load: build ## load the binary and the floor in one run, print the tables: make load BENCH=dir D=4s R=3
	@[[ -n "$(BENCH)" ]] || { echo 'load: give the folder of the load harness: make load BENCH=dir' >&2; exit 1; }
	.ci/load bin/mcpbridge '$(BENCH)' $(or $(D),4s) $(or $(R),3)

.PHONY: bench-cmp
bench-cmp: ## compare two benchmark files: make bench-cmp OLD=bench-a.txt NEW=bench-b.txt
	$(TOOL) benchstat $(OLD) $(NEW)

.PHONY: lint
lint: ## run the linters (the first run builds them: about two minutes)
	$(TOOL) golangci-lint run $(PKGS)

.PHONY: fmt
fmt: ## format the code (gofumpt, goimports)
	$(TOOL) golangci-lint fmt $(PKGS)

.PHONY: fmt-check
fmt-check: ## fail when the code is not formatted
	$(TOOL) golangci-lint fmt --diff $(PKGS)

.PHONY: vet
vet: ## run go vet
	$(GO) vet $(PKGS)

.PHONY: vuln
vuln: ## look for known vulnerabilities: make vuln VULNDB=dir (an offline copy of the Go database)
	@[[ -n "$(VULNDB)" ]] || { echo 'vuln: give an offline copy of the Go vulnerability database: make vuln VULNDB=dir' >&2; exit 1; }
	$(TOOL) govulncheck -db 'file://$(abspath $(VULNDB))' ./...

.PHONY: cover
cover: deps ## write cover.html and print the total coverage
	@mkdir -p bin
	$(GO) test -coverpkg=./... -coverprofile=bin/cover.out $(PKGS)
	$(GO) tool cover -html=bin/cover.out -o bin/cover.html
	@$(GO) tool cover -func=bin/cover.out | tail -1

.PHONY: conformance
conformance: build deps ## run the MCP conformance suite against the binary
	$(GO) run ./conformance

.PHONY: chaos
chaos: ## make faults under load and check what clients and providers saw: make chaos D=10m SEED=… BROKEN=rule
	$(GO) run ./chaos -d $(or $(D),10m) $(if $(SEED),-seed $(SEED)) $(if $(BROKEN),-broken $(BROKEN))

.PHONY: rolling storm
rolling: ## restart the binary 20 times under 1,000 calls a second, and count what clients that retry see
	$(GO) run ./chaos -mode rolling

storm: ## drop 2,000 providers at once: when all are back, and what another bridge notices
	$(GO) run ./chaos -mode storm

.PHONY: hostile
hostile: build ## attack the binary in every known way, print what a victim notices: make hostile D=10s
	$(GO) run ./hostile -server bin/mcpbridge -d $(or $(D),10s)

.PHONY: soak
soak: build ## load the binary in every way, friends and enemies, and see that it holds nothing afterwards: make soak D=20m
	$(GO) run ./hostile -server bin/mcpbridge -soak $(or $(D),20m)

.PHONY: e2e
e2e: build deps smoke ## run the end-to-end tests alone, uncached
	$(GO) test -count=1 ./cmd/... $(if $(wildcard e2e/*.go),./e2e/...)

.PHONY: smoke
smoke: build ## start the built binary, call a tool through it, stop it
	.ci/smoke bin/mcpbridge

.PHONY: image
image: ## build the container image mcpbridge:VERSION
	docker build -f deploy/Dockerfile --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t mcpbridge:$(VERSION) .

.PHONY: clean
clean: ## remove what the targets build
	rm -rf bin

# The tests come last, so that a log ends with what they say.
.PHONY: ci
ci: ## everything that a change must pass
	$(MAKE) fmt-check vet lint build smoke
	$(MAKE) fuzz T=3s
	$(MAKE) test
