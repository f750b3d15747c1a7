#!/bin/bash
#SBATCH --job-name="two words"  # a name
#SBATCH --gres=gpu:2
#SBATCH --comment='gpu:1:x:y is wrong'

# export MASTER_ADDR=localhost
echo "MASTER_ADDR=localhost # not an assignment"
srun ./app
