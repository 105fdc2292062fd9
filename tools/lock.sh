#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock for every supported Python.
# torch is pinned to one exact version and its CUDA companions are left to pip:
# a CPU wheel needs none of them, a CUDA wheel brings its own exact pins.
# triton is the one that the CUDA wheel of this torch asks for, so that the two never conflict.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=$(sed -n "s/^torch==\([0-9.]*\).*/\1/p" requirements.lock 2>/dev/null | head -n 1 || true)
torch=${1:-${torch:-2.13.0}}
links=()
[ -z "${PIP_FIND_LINKS:-}" ] || links=(--find-links "$PIP_FIND_LINKS")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
compile() { "${UV:-uv}" pip compile --universal --python-version 3.11 --no-header --no-annotate --quiet "$@"; }
triton=$(compile <(echo "torch==$torch") | sed -n "s/^triton==\([0-9.]*\).*/\1/p")
[ -n "$triton" ] || { echo "lock: torch $torch names no triton: is the package registry in reach?" >&2; exit 1; }
compile pyproject.toml --all-extras --constraint <(printf 'torch==%s\ntriton==%s\n' "$torch" "$triton") \
  "${links[@]}" -o "$out"
{
  echo "# Exact versions of everything that 'make setup' installs. Made by 'make lock'; do not edit."
  echo "torch==$torch"
  echo "triton==$triton ; platform_machine == 'x86_64' and sys_platform == 'linux'"
  grep -vE '^(torch|triton|nvidia-|cuda-)' "$out"
} > requirements.lock.new
mv requirements.lock.new requirements.lock
echo "requirements.lock: $(grep -c == requirements.lock) packages"
