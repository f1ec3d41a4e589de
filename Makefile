# The commands of this repository. Every one of them works on a machine that has
# Go and nothing else (the race detector needs a C compiler too).

export GOTOOLCHAIN := go1.27.3
export CGO_ENABLED := 0

# Where `make run` keeps its node, and what it passes to the program, as in
# `make run ARGS="-crash"`.
DIR  ?= run/flights
ARGS ?=

.PHONY: run test lint race fuzz crash bench bench-compare examples ci clean help

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

run: ## the main job: real events in, exact window counts out
	go run ./examples/flights -dir $(DIR) $(ARGS)

# What takes longest begins first.
test: ## the whole suite, in minutes
	go test -timeout 10m ./stream ./internal/... ./...
	cd log/s3store && go test ./...
	cd stream/sqlsink/sqlitetest && go test ./...

lint: ## vet, staticcheck, gofmt
	bash .ci/run vet staticcheck gofmt

race: ## the suite under the race detector, with reduced counts
	bash .ci/run race

fuzz: ## ten seconds of each fuzz target (FUZZTIME=1m for more)
	bash .ci/run fuzz

crash: ## the crash tests with raised counts
	bash .ci/run crash

examples: ## every example, from an empty directory
	bash .ci/run examples

bench: ## the benchmarks, each beside its floor: table and chart in run/bench
	bash bench/run

bench-compare: ## two commits, run in turn (BASE=main HEAD=HEAD BENCH=. COUNT=6)
	bash bench/compare

ci: ## all that a change has to pass
	bash .ci/run

clean: ## forget what runs and builds left behind
	rm -rf run bin
