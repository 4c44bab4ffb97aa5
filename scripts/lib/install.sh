# Sourced by the scripts: installs what a fresh Debian 12 lacks, and says what it does.
# shellcheck shell=bash

say() {
  if [ -t 2 ]; then printf '\033[1m==> %s\033[0m\n' "$*" >&2; else printf '==> %s\n' "$*" >&2; fi
}
note() { printf '    %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# unusual_lines NAME LOG: what the log of NAME says was skipped or flaky, each line once.
unusual_lines() { sed -nE "s/^ *(SKIPPED|FLAKY): /\1: $1: /p" "$2" | LC_ALL=C sort -u; }

# state_of_checkout: the commit and a hash of what differs from it. The floors are none of what counts of lines depend on.
state_of_checkout() {
  local changes
  changes=$({ git diff HEAD -- . ':!tests/coverage_floors.txt' && git ls-files -z --others --exclude-standard | xargs -0r sha256sum; } |
    sha256sum | cut -c1-16)
  echo "$(git rev-parse HEAD) $changes"
}

BUILD_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config
  libcpprest-dev libssl-dev libyaml-cpp-dev libjsoncpp-dev libsimdjson-dev prometheus-cpp-dev zlib1g-dev libre2-dev
  libboost-dev libboost-program-options-dev
  libgtest-dev libgmock-dev
  libcurl4-openssl-dev nlohmann-json3-dev libprotoc-dev # of the fake API server, which scripts/demo runs too
)
TEST_PACKAGES=(clang-format-14 shellcheck python3 python3-yaml openssl curl
  python3-torch # of the tests that train: tests/trainer, tests/e2e/real_training_test.cc
  chromium # of tests/cli/page_in_browser.py
  mmdebstrap binutils # of scripts/image, which tests/image runs
  python3-setuptools python3-wheel python3-pip busybox-static # of scripts/release and tests/release
)

is_installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

# need_packages NAME...: installs those that are missing; nothing happens, and fast, when none is.
need_packages() {
  local missing=() package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "needs the Debian packages: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "not root; as root run: apt-get install ${missing[*]}"
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  local log
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: ${missing[*]}"
  fi
  rm -f "$log"
}

FUZZ_PACKAGES=(clang-14 libclang-rt-14-dev)
TIDY_PACKAGES=(clang-14 clang-tidy-14 python3)

# need_clang: the clang that fuzz targets are built with; fails, having said why, where it cannot be installed.
need_clang() { (need_packages "${FUZZ_PACKAGES[@]}"); }

# need_kubectl: the kubectl on PATH, whichever made it, else Debian's.
need_kubectl() { command -v kubectl >/dev/null || need_packages kubernetes-client; }

# need_torch2: PyPI's PyTorch, transformers, timm and peft in a virtual environment of its own; PLIMSOLL_TORCH_PYTHON is its
# interpreter. Where PyPI can't be reached it says so, and the tests that need it skip.
need_torch2() {
  local home=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/torch2
  export PLIMSOLL_TORCH_PYTHON=$home/bin/python
  "$PLIMSOLL_TORCH_PYTHON" -c 'import torch, torchvision, transformers, timm, peft' 2>/dev/null && return 0
  need_packages python3-venv
  say "Installing PyTorch 2, transformers, timm and peft from PyPI in $home (5.4 GB, once)"
  local log
  log=$(mktemp)
  if ! { /usr/bin/python3 -m venv "$home" && "$home/bin/pip" install --quiet torch torchvision transformers timm peft; } >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    rm -f "$log"
    note "SKIPPED: the accuracy tests that need what is missing of PyTorch 2, transformers, timm and peft, because PyPI could not be reached (reason above)"
    return 0
  fi
  rm -f "$log"
}

# newest_torch: the interpreter of the newest PyTorch that is installed: PLIMSOLL_TORCH_PYTHON, need_torch2's, or Debian's.
newest_torch() {
  local torch2=${XDG_CACHE_HOME:-$HOME/.cache}/plimsoll/torch2/bin/python
  if [ -n "${PLIMSOLL_TORCH_PYTHON:-}" ]; then
    echo "$PLIMSOLL_TORCH_PYTHON"
  elif [ -x "$torch2" ]; then
    echo "$torch2"
  else
    need_packages python3-torch >&2
    echo /usr/bin/python3
  fi
}

# need_prometheus: Debian's prometheus and promtool, of the chart's tests, unpacked into the cache and not installed, because the
# package starts a server on the machine. Fails, having said why, where the package can't be downloaded.
need_prometheus() {
  local home=${PLIMSOLL_CACHE:-$HOME/.cache/plimsoll}/prometheus log folder
  command -v promtool >/dev/null && command -v prometheus >/dev/null && return 0
  [ -x "$home/usr/bin/promtool" ] && return 0
  say "Downloading Debian's prometheus into $home (19 MB, once)"
  log=$(mktemp)
  folder=$(mktemp -d)
  if ! (cd "$folder" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } &&
    mkdir -p "$home" && dpkg -x prometheus_*.deb "$home") >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    rm -rf "$log" "$folder"
    note "SKIPPED: the tests with Prometheus, because Debian's package could not be downloaded (reason above)"
    return 1
  fi
  rm -rf "$log" "$folder"
}

# need_ruff: ruff, from PyPI, in a virtual environment of its own; PLIMSOLL_RUFF is the program. Debian 12 has none. Fails,
# having said why, where PyPI can't be reached.
need_ruff() {
  local home=${PLIMSOLL_CACHE:-$HOME/.cache/plimsoll}/ruff-0.14.6 log
  export PLIMSOLL_RUFF=$home/bin/ruff
  "$PLIMSOLL_RUFF" --version >/dev/null 2>&1 && return 0
  need_packages python3-venv
  say "Installing ruff from PyPI in $home"
  log=$(mktemp)
  if ! { /usr/bin/python3 -m venv "$home" && "$home/bin/pip" install --quiet ruff==0.14.6; } >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    rm -rf "$log" "$home"
    note "SKIPPED: ruff, because it could not be installed from PyPI (reason above)"
    return 1
  fi
  rm -f "$log"
}
