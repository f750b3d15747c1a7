#!/bin/bash
#SBATCH --gres=gpu:a100:1
#SBATCH -n 1
#SBATCH -c 8

python predict.py
