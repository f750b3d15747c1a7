"""Commands that start no training: none of them may keep a rule from speaking."""

from __future__ import annotations

HELPERS = """\
hostname
srun hostname
srun --nodes=2 --ntasks=2 hostname -s > hosts.txt
head_ip=$(srun --nodes=1 --ntasks=1 hostname --ip-address)
head_ip=$(srun --nodes=1 --ntasks=1 -w "$first" hostname --ip-address | awk '{print $1}')
srun nvidia-smi
srun --ntasks=2 bash -c 'echo $SLURM_NODEID; nvidia-smi -L'
srun --overlap nvidia-smi dmon -d 30 > gpus.log &
nvidia-smi --query-gpu=name --format=csv
nvidia-smi -l 60 > gpus.log 2>&1 &
mpirun hostname
mpirun -np 2 nvidia-smi
export $(cat .env | xargs)
export $(grep -v '^#' .env | xargs -d '\\n')
ls shards | xargs -n 1 -P 8 gunzip
find . -name '*.pyc' | xargs rm -f
ssh -N -f -L 8888:localhost:8888 login1
ssh -N -R 6006:localhost:6006 login1 &
ssh login1 hostname
parallel unzip ::: data/*.zip
parallel -j 8 tar xf {} ::: data/*.tar
for i in $(seq 0 15); do echo $i; done
MASTER_PORT=$(shuf -i 20000-30000 -n 1)
port=$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
python --version
python -c 'import torch; print(torch.cuda.device_count())'
srun python -c 'import torch; print(torch.cuda.is_available())'
python -m pip install -r requirements.txt
python -m venv .venv
uv sync
uv pip install -e .
pip install -e .
poetry install
conda activate train
eval "$(conda shell.bash hook)"
micromamba activate train
source .venv/bin/activate
module purge && module load cuda/12.4
singularity pull image.sif docker://pytorch/pytorch
apptainer build image.sif docker://pytorch/pytorch
docker pull pytorch/pytorch
srun --ntasks-per-node=1 rsync -a data/ $TMPDIR/
srun -N 2 -n 2 cp data.tar /tmp/
srun --ntasks=2 --ntasks-per-node=1 tar xf data.tar -C /tmp
sbcast data.tar /tmp/data.tar
huggingface-cli download some/model --local-dir model
wandb login
tensorboard --logdir runs --port 6006 &
aws s3 sync s3://bucket/data data
git rev-parse HEAD
timeout 10 ping -c 1 head
numactl --hardware
scontrol show job $SLURM_JOB_ID
curl -sf https://example.org/hook -d started
watch -n 60 df -h > disk.log &
sleep 10
trap 'echo ended' EXIT
ulimit -n 65536
""".splitlines()
