# Sourced after install.sh: a Python that has torchrec, in a folder of its own outside the checkout.
# shellcheck shell=bash

# The versions that work together on a CPU: fbgemm-gpu-cpu 1.9.0 does not load in newer torch, and torchrec's own
# requirements would bring the CUDA build of it.
TORCHREC_HOME=${PLIMSOLL_CACHE:-$HOME/.cache/plimsoll}/torchrec

# need_torchrec: prints the interpreter; fails with the reason where PyPI cannot be reached.
need_torchrec() {
  local python=$TORCHREC_HOME/bin/python
  if ! [ -e "$TORCHREC_HOME/complete" ]; then
    need_packages python3-venv
    say "Installing torchrec into $TORCHREC_HOME (about 5.5 GB, once)"
    if ! {
      /usr/bin/python3 -m venv "$TORCHREC_HOME" &&
        "$python" -m pip install --quiet torch==2.14.1 &&
        "$python" -m pip install --quiet --no-deps torchrec==1.9.2 fbgemm-gpu-cpu==1.9.0 &&
        "$python" -m pip install --quiet iopath pyre-extensions tensordict torchmetrics tqdm psutil numpy
    } >&2; then
      note "torchrec could not be installed from PyPI"
      return 1
    fi
    touch "$TORCHREC_HOME/complete"
  fi
  printf '%s\n' "$python"
}
