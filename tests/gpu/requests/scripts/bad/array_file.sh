#!/bin/bash
#SBATCH --array=1-4
#SBATCH --output=sweep.log
srun ./app
# expect: array-in-one-file@3
