#!/bin/sh
# Create a virtual environment, or update it, with uv:
#
#     environment.sh FOLDER PYTHON OPTIONS_OF_UV_PIP_INSTALL...
#
# PYTHON may be empty: then the folder's own Python is kept where it fits, or the first on PATH that fits is
# taken. pip installs uv where it is neither on PATH nor in an environment of this folder.
set -eu
folder=$1
python=$2
shift 2

is_fit='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
identity='import sys; print(sys.base_prefix, sys.version)'

fits() { "$1" -c "$is_fit" >/dev/null 2>&1; }

is_whole() { fits "$1" && "$1" -m pip --version >/dev/null 2>&1; }

own=$folder/bin/python
# Without PYTHON an environment that works is kept; with it, one that was made by this Python.
if [ -n "$python" ]; then
  candidates=$python
  is_whole "$own" && [ "$("$own" -c "$identity")" = "$("$python" -c "$identity" 2>/dev/null)" ] && keep=yes
else
  candidates='python3 python3.13 python3.12 python3.11'
  is_whole "$own" && keep=yes
fi
if [ -z "${keep:-}" ]; then
  # A pyenv shim of a version that isn't chosen is on PATH and fails, so each candidate is run.
  for candidate in $candidates; do
    fits "$candidate" && break
    candidate=
  done
  if [ -z "$candidate" ]; then
    echo "Tableferry needs Python 3.11, 3.12 or 3.13 with its venv module${python:+, and $python isn't that}:" \
      "install it (Debian/Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.13)" \
      "or name one with PYTHON=/path/to/python, and run make again." >&2
    exit 1
  fi
  "$candidate" -m venv --clear "$folder"
fi
echo "Setting up $folder with $("$own" --version); the first time, this takes a minute or two."

uv=
for candidate in uv .venv/bin/uv "$folder/bin/uv"; do
  if "$candidate" --version >/dev/null 2>&1; then
    uv=$candidate
    break
  fi
done
if [ -z "$uv" ]; then
  uv=$folder/bin/uv
  "$own" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv || {
    echo "uv couldn't be installed: read pip's reason above, and run make again." >&2
    exit 1
  }
fi
"$uv" pip install --quiet --compile-bytecode --python "$own" "$@" || {
  echo "The packages couldn't be installed: read uv's reason above, and run make again." >&2
  exit 1
}
