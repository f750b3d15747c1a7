#!/bin/bash
#SBATCH --job-name two words
srun ./app
# expect: stray-word@2
