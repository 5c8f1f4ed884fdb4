"""Builds the extension modules of the package srdma_bench (see build_native.py in the root)."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from build_native import BuildNative, extensions

setup(ext_modules=extensions("bench"), cmdclass={"build_ext": BuildNative})
