"""Makes the tests' certificates anew."""

from tests.certificates import make

make()
