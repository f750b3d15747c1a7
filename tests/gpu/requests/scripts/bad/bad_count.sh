#!/bin/bash
#SBATCH --cpus-per-task=four

srun ./a
# expect: bad-value@2
