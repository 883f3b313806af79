# dsh-web. `make run` starts the host, `make test` checks everything; both set up what they need and say so.

BIN     := bin
ARGS    ?=
GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOL    := $(GO) tool -modfile=.ci/tools.mod

.PHONY: run build test race unit nocgo lint tidy ui ui-check e2e python wheel bench soak check clean need-go need-node

run: build ## build and start the host: http://127.0.0.1:3080, no key needed
	@echo "==> starting dsh-web (stop with Ctrl-C)"
	@$(BIN)/dsh-web serve $(ARGS)

build: need-go ## build the binaries into bin/
	@echo "==> building $(BIN)/ ($$($(GO) env GOVERSION), cgo $$(sh .ci/cgo))"
	@CGO_ENABLED=$$(sh .ci/cgo) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

test: need-go lint unit nocgo ui-check python e2e ## everything that CI runs
	@echo "==> all checks passed"

race: unit

unit: need-go ## all Go tests, with the race detector where there is a C compiler
	@echo "==> go test (race detector: $$(sh .ci/cgo | sed 's/1/on/;s/0/off, no C compiler/'))"
	@CGO_ENABLED=$$(sh .ci/cgo) $(GO) test $$(sh .ci/cgo | sed 's/1/-race/;s/0//') -shuffle=on -timeout 15m ./...

nocgo: need-go ## the store and the binary without a C compiler
	@echo "==> without cgo"
	@CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/dsh-web
	@CGO_ENABLED=0 $(GO) test -timeout 10m ./host/session/sqlite/...

lint: need-go tidy ## gofmt, vet, staticcheck
	@echo "==> gofmt, vet, staticcheck"
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "run gofmt -w on:"; echo "$$out"; exit 1; }
	@CGO_ENABLED=$$(sh .ci/cgo) $(GO) vet ./...
	@CGO_ENABLED=0 GOOS=darwin $(GO) vet ./...
	@CGO_ENABLED=$$(sh .ci/cgo) $(TOOL) staticcheck ./...

tidy: need-go
	@echo "==> go mod tidy changes nothing"
	@$(GO) mod tidy -diff

ui: need-node ## rebuild web/dist from web/ui
	@echo "==> building the page"
	@cd web/ui && npm ci --no-audit --no-fund && npm run build

ui-check: need-node ## types and tests of the page; web/dist is exactly what its source builds to
	@echo "==> checking the page"
	@cd web/ui && npm ci --no-audit --no-fund && npm run check && npm run build
	@git diff --exit-code --stat -- web/dist || { echo "web/dist differs from its source: run 'make ui' and commit the result"; exit 1; }
	@[ -z "$$(git status --porcelain -- web/dist)" ] || { git status --porcelain -- web/dist; echo "web/dist has uncommitted files: run 'make ui' and commit the result"; exit 1; }

e2e: build need-node ## a real browser on the real binary
	@echo "==> browser tests"
	@command -v chromium >/dev/null || { echo "browser tests need Chromium: apt-get install chromium"; exit 1; }
	@cd web/ui && npm run e2e

python: build ## the Python client on the real binary
	@if [ -d sdk/python ]; then echo "==> Python client"; command -v python3 >/dev/null || { echo "the Python client's tests need Python 3.10 or newer: apt-get install python3"; exit 1; }; \
	cd sdk/python && DSH_BIN=$(CURDIR)/$(BIN)/dsh python3 -m unittest discover -q -s tests; fi

wheel: need-go ## a wheel of the Python client that carries dsh, into dist-wheel/
	@echo "==> building the wheel"
	@command -v python3 >/dev/null || { echo "the wheel needs Python 3.10 or newer: apt-get install python3"; exit 1; }
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/wheel/dsh ./cmd/dsh
	@python3 sdk/python/build_wheel.py --binary $(BIN)/wheel/dsh --out dist-wheel

bench: need-go ## the benchmarks
	@$(GO) test -run '^$$' -bench . -benchtime 1s ./...

soak: need-go ## the long versions of the robustness tests
	@DSH_SOAK=1 $(GO) test -timeout 60m ./host/... ./tools/...

check: test

clean:
	rm -rf $(BIN) web/ui/node_modules

need-go:
	@command -v $(GO) >/dev/null || { echo "dsh-web needs Go 1.26 or newer: https://go.dev/dl"; exit 1; }

need-node:
	@command -v npm >/dev/null || { echo "building the page needs Node.js 20 or newer with npm (the host itself doesn't: its page is committed)"; exit 1; }
