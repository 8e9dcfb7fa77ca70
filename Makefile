# make help lists what there is. Nothing here is needed: go run ./cmd/weir up and go test ./... stand alone.
.DEFAULT_GOAL := help
.PHONY: help up test check generate binary image stack stop gpu-check gpu-check-binaries

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 24

up: ## learn the demonstration in one process
	go run ./cmd/weir up

test: ## the tests
	go test ./...

check: ## everything that a change must pass
	.ci/run

generate: ## write docs/configuration.md and docs/metrics.md again
	go generate ./internal/docs

binary: ## the static binary that the image's host target takes
	CGO_ENABLED=0 go build -trimpath -o deploy/bin/weir ./cmd/weir

image: binary ## the image, without pulling any
	docker build -f deploy/Dockerfile --target host -t weir:local .

stack: binary ## the roles as services, without pulling any image
	WEIR_BUILD_TARGET=host docker compose up --build broker trainer producer inference

stop: ## stop the services and forget their run
	docker compose down --volumes

gpu-check: gpu-check-binaries ## check and measure the PyTorch side on this machine's GPU; without one, pack what to carry to it
	@if nvidia-smi -L >/dev/null 2>&1; then deploy/gpucheck/run.sh; else deploy/gpucheck/pack.sh; fi

gpu-check-binaries: ## the static programs that the check needs
	mkdir -p deploy/bin/gpucheck
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/weir ./cmd/weir
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/gpu-torch.test ./gpu/torch
	CGO_ENABLED=0 go test -c -trimpath -ldflags '-s -w' -o deploy/bin/gpucheck/gpu-hf-template.test ./gpu/hf/template
