#!/usr/bin/env bash
# Gradescope runs this once, as root, when it makes the image.
set -euo pipefail
apt-get install --yes bubblewrap libseccomp2 curl
curl -LsSf https://astral.sh/uv/install.sh | env UV_INSTALL_DIR=/usr/local/bin sh
export UV_PYTHON_INSTALL_DIR=/opt/python # not below /root, which the jail does not have
uv venv --python 3.12 /autograder/venv
uv pip install --python /autograder/venv --torch-backend cpu \
    "$(echo /autograder/source/*.whl)[grading]"
