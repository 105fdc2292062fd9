#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock for every supported Python.
# torch is pinned to one exact version and its CUDA companions are left to pip:
# a CPU wheel needs none of them, a CUDA wheel brings its own exact pins.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=$(sed -n "s/^torch==\([0-9.]*\).*/\1/p" requirements.lock 2>/dev/null | head -n 1 || true)
torch=${1:-${torch:-2.13.0}}
links=()
[ -z "${PIP_FIND_LINKS:-}" ] || links=(--find-links "$PIP_FIND_LINKS")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"${UV:-uv}" pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
  --constraint <(echo "torch==$torch") "${links[@]}" --no-header --no-annotate --quiet -o "$out"
{
  echo "# Exact versions of everything that 'make setup' installs. Made by 'make lock'; do not edit."
  echo "torch==$torch"
  grep -vE '^(torch|triton|nvidia-|cuda-)' "$out"
} > requirements.lock.new
mv requirements.lock.new requirements.lock
echo "requirements.lock: $(grep -c == requirements.lock) packages"
