"""lm_eval's local-completions: likelihoods of answers, from prompts that are echoed."""

import json
import subprocess
import sys

TASK = """task: capitals
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""
ROWS = [("The capital of France is", ["Paris.", "Madrid.", "Rome."], 0),
        ("The capital of Spain is", ["Paris.", "Madrid.", "Rome."], 1),
        ("The capital of Italy is", ["Paris.", "Madrid.", "Rome."], 2)]


def test_local_completions(server_url, tmp_path):
    data = tmp_path / "capitals.jsonl"
    data.write_text("".join(
        json.dumps({"question": question, "choices": choices, "answer": answer}) + "\n"
        for question, choices, answer in ROWS))
    (tmp_path / "capitals.yaml").write_text(TASK.format(data=data))
    arguments = (f"model=nano,base_url={server_url}/v1/completions,tokenizer=models/nano,"
                 "num_concurrent=2,max_retries=1")
    subprocess.run([sys.executable, "-m", "lm_eval", "--model", "local-completions",
                    "--model_args", arguments, "--tasks", "capitals",
                    "--include_path", str(tmp_path), "--output_path", str(tmp_path / "out"),
                    "--log_samples"], check=True, timeout=300)
    result = json.loads(next((tmp_path / "out").rglob("results_*.json")).read_text())
    assert result["results"]["capitals"]["acc,none"] == 1, result["results"]
