"""Data-parallel training of a small neural network on real images: handwritten digits.

    python3 examples/train_digits.py
    poprun --num-replicas 8 --num-instances 4 python3 examples/train_digits.py

Both give the same weights, to rounding. Each batch is divided among all replicas; every replica
computes the gradient of its share; the sum of all gradients moves the weights, which are
therefore the same everywhere at all times. Needs numpy and scikit-learn (for its images).

With --checkpoint it can be moved to other devices while it trains (poprun --movable), and goes on
where it was: the weights are the same to the last bit.
"""

import argparse
import importlib.util
import json
import os
import sys
import time

import numpy as np

import popdist

HIDDEN, BATCH, RATE, MOMENTUM = 64, 240, 0.2, 0.9
SHAPES = {"w1": (64, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 10), "b2": (10,)}


def load_digits():
    """1797 images of 8x8 grey pixels from 0 to 1, and which digit each shows.

    Read from where scikit-learn keeps them: importing it would take longer than the training.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise SystemExit("this example needs scikit-learn: python3 -m pip install scikit-learn")
    folder = package.submodule_search_locations[0]
    table = np.loadtxt(f"{folder}/datasets/data/digits.csv.gz", delimiter=",")
    return table[:, :-1] / 16, table[:, -1].astype(int)


def split(vector):
    """The layers of the network, as views of one vector: one vector is one all-reduce."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES.values()])
    parts = np.split(vector, ends[:-1])
    return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, parts, strict=True)}


def forward(weights, images):
    """Hidden activations, and the probability of each digit for each image."""
    net = split(weights)
    hidden = np.maximum(images @ net["w1"] + net["b1"], 0)
    scores = hidden @ net["w2"] + net["b2"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient_and_loss(weights, images, digits):
    """Sums, not means, over these images: sums of shares add up to the sum of the batch."""
    hidden, probability = forward(weights, images)
    rows = np.arange(len(digits))
    loss = -np.log(probability[rows, digits]).sum()
    error = probability.copy()
    error[rows, digits] -= 1
    below = (error @ split(weights)["w2"].T) * (hidden > 0)
    parts = (images.T @ below, below.sum(axis=0), hidden.T @ error, error.sum(axis=0))
    return np.concatenate([*(part.ravel() for part in parts), [loss]])


def keep(path, epoch, weights, velocity, random):
    """Write what is needed to go on behind an epoch, whole or not at all."""
    state = json.dumps(random.bit_generator.state)
    np.savez(f"{path}.new.npz", epoch=epoch, weights=weights, velocity=velocity, state=state)
    os.replace(f"{path}.new.npz", path)


def train(images, digits, epochs, checkpoint="", pause=0.0):
    """The trained weights: the same in every instance."""
    random = np.random.default_rng(2)  # the same numbers in every instance
    weights = np.concatenate(
        [random.normal(0, 2 / shape[0], shape).ravel() for shape in SHAPES.values()]
    )
    for name in ("b1", "b2"):
        split(weights)[name][:] = 0
    velocity = np.zeros_like(weights)
    done = 0
    if checkpoint and os.path.exists(checkpoint):
        with np.load(checkpoint) as kept:
            done, weights, velocity = int(kept["epoch"]), kept["weights"], kept["velocity"]
            random.bit_generator.state = json.loads(str(kept["state"]))
        say(f"going on behind epoch {done}")
    if checkpoint:
        popdist.onMove()
    first = popdist.getReplicaIndexOffset()
    mine = range(first, first + popdist.getNumLocalReplicas())
    for epoch in range(done + 1, epochs + 1):
        if checkpoint and popdist.mustMove():
            popdist.execute_on_instances(
                {0}, keep, checkpoint, epoch - 1, weights, velocity, random
            )
            sys.exit(popdist.MOVED)
        time.sleep(pause)
        order = random.permutation(len(images))
        loss = 0.0
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            total = np.zeros(len(weights) + 1)
            for replica in mine:
                share = batch[popdist.shard(len(batch), replica)]
                total += gradient_and_loss(weights, images[share], digits[share])
            total = popdist.allReduceSum(total)
            loss += total[-1]
            velocity = MOMENTUM * velocity - RATE * total[:-1] / len(batch)
            weights += velocity
        if epoch == 1 or epoch % 5 == 0 or epoch == epochs:
            say(f"epoch {epoch:3} of {epochs}   loss {loss / len(images):.4f}")
    return weights


def say(text):
    """Print it once, not once an instance."""
    popdist.execute_on_instances({0}, print, text, flush=True)


def main():
    parser = argparse.ArgumentParser(description="Train on handwritten digits, data-parallel.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the images (20)")
    parser.add_argument("--save", metavar="FILE", help="write the weights here (numpy .npz)")
    parser.add_argument("--checkpoint", default="", metavar="FILE", help="to go on after a move")
    parser.add_argument("--pause", type=float, default=0, metavar="S", help="rest before epochs")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: it must be 1 or more")

    popdist.init()
    images, digits = load_digits()
    order = np.random.default_rng(1).permutation(len(images))
    held_back, rest = order[:360], order[360:]
    say(
        f"images: {len(rest)}, replicas: {popdist.getNumTotalReplicas()}, "
        f"instances: {popdist.getNumInstances()}"
    )
    weights = train(
        images[rest], digits[rest], options.epochs, options.checkpoint, max(0.0, options.pause)
    )
    guess = forward(weights, images[held_back])[1].argmax(axis=1)
    if options.save:
        popdist.execute_on_instances({0}, np.savez, options.save, **split(weights))
    say(f"test accuracy {(guess == digits[held_back]).mean():.2f}")


if __name__ == "__main__":
    main()
