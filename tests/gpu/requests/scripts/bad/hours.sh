#!/bin/bash
#SBATCH --time=24:00
srun ./app
# expect: minutes-or-hours@2
