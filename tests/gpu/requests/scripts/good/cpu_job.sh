#!/bin/bash
#SBATCH --ntasks=16
#SBATCH --mem-per-cpu=2G

srun ./simulate
