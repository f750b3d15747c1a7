#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --time=7-0
python -m vllm.entrypoints.openai.api_server --model m
# expect: online-serving@4
