// Package deploy runs Weir as services: the image, the NATS configuration, Prometheus rules, Grafana
// dashboards and Kubernetes manifests. Its tests bring the stack of docker-compose.yml up for real and hold every
// file here to the names that the code uses.
package deploy
