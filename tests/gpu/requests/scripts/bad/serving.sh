#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --time=7-0
vllm serve my-model --port 8000
# expect: online-serving@4
