#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --time=10:00

first=$(sbatch --parsable train.sh)
sbatch --dependency=afterok:"$first" evaluate.sh
