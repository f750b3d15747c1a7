#!/bin/bash
#SBATCH –-ntasks=2
srun ./app
# expect: typographic-dash@2
