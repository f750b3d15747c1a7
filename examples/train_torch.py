"""Data-parallel training in torch, on processors, that runs under poprun and torchrun unchanged.

    python3 examples/train_torch.py
    poprun --num-replicas 2 --num-instances 2 --launcher local python3 examples/train_torch.py
    torchrun --standalone --nproc-per-node 2 examples/train_torch.py

A small network learns which side of a circle a point is on. Each instance computes the gradient
of its own points; DistributedDataParallel averages the gradients, so that all instances have the
same weights at all times, whoever started them. Needs torch.
"""

import torch
import torch.distributed as dist
from torch import nn

import popdist.torch

POINTS, STEPS = 4096, 200


def main():
    rank, size = popdist.torch.init_process_group("gloo")
    torch.manual_seed(0)  # the same weights to begin with, the same points everywhere
    torch.set_num_threads(1)
    points = torch.rand(POINTS, 2) * 2 - 1
    inside = (points.norm(dim=1) < 0.7).float()
    mine = slice(POINTS * rank // size, POINTS * (rank + 1) // size)

    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(
            model(points[mine]).squeeze(1), inside[mine]
        )
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach_(), dist.ReduceOp.SUM)
        if rank == 0 and step % 50 == 0:
            print(f"step {step:3} of {STEPS}   loss {loss.item() / size:.4f}", flush=True)

    with torch.no_grad():
        right = ((net(points).squeeze(1) > 0) == (inside > 0)).float().mean().item()
    weights = torch.cat([weight.flatten() for weight in net.parameters()])
    others = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(others, weights)
    if rank == 0:
        same = all(torch.equal(weights, other) for other in others)
        print(f"instances {size}, the same weights: {same}, accuracy {right:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
