#!/bin/bash
#SBATCH --partition=<partition>
#SBATCH --ntasks=4

srun ./a
# expect: template@2
