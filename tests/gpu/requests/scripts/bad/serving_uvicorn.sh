#!/bin/bash
#SBATCH --gres=gpu:1
#SBATCH --time=7-0
uvicorn app:api --host 0.0.0.0
# expect: online-serving@4
