#!/bin/bash
#SBATCH --gpus-per-node=4
#SBATCH --time=04:00:00

python -m vllm.entrypoints.offline --prompts prompts.jsonl --out answers.jsonl
