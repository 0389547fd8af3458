#!/usr/bin/env bash
# Makes a Python environment with what the clients' tests need (tests/clients/requirements.txt), or
# brings it up to date.
#   tools/python_environment.sh build/clients
set -euo pipefail
cd "$(dirname "$0")/.."

environment=${1:?usage: tools/python_environment.sh FOLDER}
requirements=tests/clients/requirements.txt
stamp=$environment/requirements.txt

cmp -s "$requirements" "$stamp" && exit 0
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
cp "$requirements" "$stamp"
