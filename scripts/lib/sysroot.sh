# Sourced by scripts that build for arm64 on another machine. Needs install.sh.
# shellcheck shell=bash

CROSS_PACKAGES=(mmdebstrap g++-aarch64-linux-gnu qemu-user)
# What the build needs of the target. Debian's -dev packages of two architectures cannot be installed beside each other.
SYSROOT_PACKAGES=(libc6-dev libstdc++-12-dev libcpprest-dev libssl-dev libyaml-cpp-dev libjsoncpp-dev libsimdjson-dev prometheus-cpp-dev
  zlib1g-dev libre2-dev libboost-dev libboost-program-options-dev
  libgtest-dev libgmock-dev libcurl4-openssl-dev nlohmann-json3-dev libprotoc-dev) # of the tests

# need_sysroot: the cross compiler, and a root file system of arm64's packages in the cache; SYSROOT is its folder. Fails, having
# said why, where the packages can't be had.
need_sysroot() {
  need_packages "${CROSS_PACKAGES[@]}"
  SYSROOT=${PLIMSOLL_CACHE:-$HOME/.cache/plimsoll}/sysroot-arm64
  local packages link
  packages=$(IFS=,; echo "${SYSROOT_PACKAGES[*]}")
  # One of other packages is of another version of this file.
  [ ! -f "$SYSROOT/complete" ] || [ "$(cat "$SYSROOT/complete")" != "$packages" ] || return 0
  rm -rf "$SYSROOT"
  mkdir -p "$(dirname "$SYSROOT")"
  say "Unpacking arm64's libraries in $SYSROOT (530 MB, once)"
  mmdebstrap --quiet --variant=extract --architectures=arm64 --aptopt='Acquire::Retries "3"' --include="$packages" bookworm "$SYSROOT" || {
    note "the packages of arm64 could not be downloaded and unpacked (reason above)"
    return 1
  }
  # Absolute links lead out of the sysroot.
  find "$SYSROOT" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
    ln -sfn "$SYSROOT$(readlink "$link")" "$link"
  done
  echo "$packages" >"$SYSROOT/complete"
}
