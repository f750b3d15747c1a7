"""Makes the folders of other Debians, before any test: on a new machine that takes minutes, and no
test's own time is to be spent on it."""

from ._release import CLEAN, SUITES, clean, release

for name in SUITES:
    release(name)
for name in CLEAN:
    clean(name)
