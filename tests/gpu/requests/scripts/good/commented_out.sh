#!/bin/bash
##SBATCH --gres=gpu:1
##SBATCH --mem=4G
python train.py
