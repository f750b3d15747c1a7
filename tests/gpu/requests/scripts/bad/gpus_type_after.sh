#!/bin/bash
#SBATCH --gpus=4:h100

srun ./a
# expect: gres-order@2
