"""The extension modules: each srdma/_*.pyx over build/libsrdma-core.a and, for benchmarks, libkvs.a.

The Makefile owns the C sources, flags and libraries; this file asks it.
"""

import os
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILD = os.environ.get("BUILD", "build")


def make(*args: str) -> str:
    """Run make as if from the command line, outside any make that runs us."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "-s", f"BUILD={BUILD}", *args]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


class BuildNative(build_ext):
    """Builds libsrdma-core.a first and links with the libraries that it needs."""

    def build_extension(self, ext: Extension) -> None:
        make("lib", "kvs")
        ext.extra_link_args += ["-fno-lto", *make("print-libs").split()]
        super().build_extension(ext)


def extensions() -> list[Extension]:
    sources = sorted(Path("srdma").glob("_*.pyx"))
    if os.environ.get("SRDMA_WITHOUT_NATIVE") or not sources:
        return []
    from Cython.Build import cythonize

    modules = [
        Extension(
            f"srdma.{source.stem}",
            [str(source)],
            include_dirs=["csrc", ".", "bench/kvs"],
            extra_objects=[f"{BUILD}/libkvs.a", f"{BUILD}/libsrdma-host.a", f"{BUILD}/libsrdma-core.a"],
            extra_compile_args=["-O2", "-g"],
        )
        for source in sources
    ]
    options = {"language_level": 3, "force": True, "quiet": True}
    return cythonize(modules, build_dir=f"{BUILD}/cython", **options)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildNative})
