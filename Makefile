# make help lists what there is. Nothing here is needed: go run ./cmd/weir up and go test ./... stand alone.
.DEFAULT_GOAL := help
.PHONY: help up test check generate binary image stack stop

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

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
