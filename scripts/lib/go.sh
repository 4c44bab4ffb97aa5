# Sourced: finding Go, and what is built or downloaded with it: the peers of the benchmarks, and CRDs of others.
# shellcheck shell=bash

# find_go: prints a Go of at least 1.26, which the modules under tests/ need; fails where there is none.
find_go() {
  local candidate version
  for candidate in go /usr/local/go/bin/go; do
    version="$(GOTOOLCHAIN=local "$candidate" env GOVERSION 2>/dev/null)" || continue
    if [[ "$version" =~ ^go([0-9]+)\.([0-9]+) ]] &&
      ((BASH_REMATCH[1] > 1 || (BASH_REMATCH[1] == 1 && BASH_REMATCH[2] >= 26))); then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

# need_go_peer NAME: prints the program of tests/bench/peers/NAME, built once for each state of its sources into
# the cache; fails, with the reason on standard error, where it is not to be had.
need_go_peer() {
  local module=tests/bench/peers go folder building
  folder="${PLIMSOLL_CACHE:-$HOME/.cache/plimsoll}/peers"
  folder+="/$(cat "$module"/go.mod "$module"/go.sum "$module/$1"/*.go | sha256sum | cut -c1-16)"
  if ! [ -x "$folder/$1" ]; then
    go="$(find_go)" || {
      note "no Go 1.26 or later on PATH or in /usr/local/go: the peer cannot be built"
      return 1
    }
    say "Building the peer $1 with Go (a few minutes, once)" >&2
    mkdir -p "$folder"
    building="$(mktemp "$folder/.building-XXXXXX")"
    # A registry that answers does so in seconds; the modules of a first build are some 60 MB.
    local in=(env -C "$module" GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off)
    if ! {
      timeout 20 "${in[@]}" "$go" mod download k8s.io/klog/v2 &&
        timeout 600 "${in[@]}" "$go" mod download &&
        "${in[@]}" "$go" build -trimpath -ldflags "-s -w" -o "$building" "./$1"
    } >&2; then
      rm -f "$building"
      note "the Go modules are not to be had here, or do not build: the peer is left out"
      return 1
    fi
    chmod 755 "$building"
    mv "$building" "$folder/$1"
  fi
  printf '%s\n' "$folder/$1"
}

# need_foreign_crds: prints the CRDs of cert-manager and the Prometheus operator whose kinds the chart renders: the files, with commas
# between them, of the modules that tests/chart/crds pins, which Go keeps in its cache. Fails, with the reason on standard error,
# where they are not to be had.
need_foreign_crds() {
  local go certmanager=github.com/cert-manager/cert-manager monitoring=github.com/prometheus-operator/prometheus-operator files
  go="$(find_go)" || {
    note "no Go 1.26 or later on PATH or in /usr/local/go: the CRDs of others cannot be had"
    return 1
  }
  local in=(env -C tests/chart/crds GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off)
  # 8 MB. Checked against go.sum.
  timeout 60 "${in[@]}" "$go" mod download "$certmanager" "$monitoring" >&2 || {
    note "the Go modules that hold the CRDs of others are not to be had here"
    return 1
  }
  certmanager=$("${in[@]}" "$go" list -m -f '{{.Dir}}' "$certmanager")/deploy/crds/cert-manager.io
  monitoring=$("${in[@]}" "$go" list -m -f '{{.Dir}}' "$monitoring")/example/prometheus-operator-crd/monitoring.coreos.com
  files=("$certmanager"_{certificates,issuers}.yaml "$monitoring"_{prometheusrules,servicemonitors}.yaml)
  (IFS=,; echo "${files[*]}")
}
