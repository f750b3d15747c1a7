#!/bin/bash
#SBATCH --array=0-99%
#SBATCH --output=out-%a.txt
# expect: array-unlimited@2
python work.py
