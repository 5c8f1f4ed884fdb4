"""Builds the extension modules of the package srdma, and the worker, by build_native.py."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_native import BuildWithWorker, extensions

setup(ext_modules=extensions("core"), cmdclass={"build_ext": BuildWithWorker})
