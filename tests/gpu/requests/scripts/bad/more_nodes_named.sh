#!/bin/bash
#SBATCH --nodes=1
#SBATCH -w n[1-2]

srun ./a
# expect: more-nodes-named@3
