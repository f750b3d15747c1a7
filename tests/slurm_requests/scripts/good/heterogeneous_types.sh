#!/bin/bash
#SBATCH --gres=gpu:a100:2,license_x:1
#SBATCH --nodes=1

srun ./app
