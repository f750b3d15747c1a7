"""Compile once, run everywhere: one instance compiles, the others load what it made.

    python3 examples/compile_once.py
    poprun --num-replicas 4 --num-instances 4 python3 examples/compile_once.py
    poprun --num-replicas 4 --num-instances 4 --executable-cache-path cache \\
        python3 examples/compile_once.py        # and once more: nobody compiles

The program that is compiled: a polynomial of many terms, written out as Python source of one
long expression, which Python takes a while to translate, as a compiler of graphs would.
"""

import marshal
import sys
import time

import popdist

TERMS = 4000


def compile_polynomial():
    """Bytecode that evaluates the polynomial at x."""
    say("compiling ...")
    terms = "\n".join(f"total = total * x + {number % 97}" for number in range(TERMS))
    return compile(f"total = 0\n{terms}\ntotal %= 1000003", "polynomial", "exec")


def say(text):
    print(f"instance {popdist.getInstanceIndex()}: {text}", flush=True)


def main():
    compiled = []

    def build():
        compiled.append(True)
        return compile_polynomial()

    # The key names all that the result depends on; bytecode differs between versions of Python.
    key = f"polynomial of {TERMS} terms, {sys.implementation.cache_tag}"
    start = time.perf_counter()
    code = popdist.compile_once(key, build, dumps=marshal.dumps, loads=marshal.loads)
    seconds = time.perf_counter() - start
    say(f"{'compiled' if compiled else 'loaded'} in {seconds * 1000:.0f} ms")
    names = {"x": 3}
    exec(code, names)
    say(f"result {names['total']}")


if __name__ == "__main__":
    main()
