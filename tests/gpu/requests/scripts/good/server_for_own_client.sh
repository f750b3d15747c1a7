#!/bin/bash
#SBATCH --gres=gpu:2
#SBATCH --time=02:00:00

vllm serve my-model --port 8111 &
server=$!
python wait_ready.py 8111
python score.py --url http://localhost:8111
kill $server
