"""Builds Cython extension modules: `python build_native.py core|bench|tests` (make native).

The Makefile defines C sources, flags and libraries; this file gets them by `make`. The setup.py of
each distribution imports this file.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / os.environ.get("BUILD", "build")


class Part(NamedTuple):
    """A package of extension modules and its libraries."""

    base: Path  # folder that holds the package
    package: str
    libraries: tuple[str, ...]  # targets of the Makefile, libNAME.a in BUILD; in link order


PARTS = {
    "core": Part(ROOT, "srdma.native", ("srdma-host", "srdma-core")),
    "bench": Part(ROOT / "bench/python", "srdma_bench.native", ("kvs", "srdma-host", "srdma-core")),
    "tests": Part(ROOT, "tests.native", ("srdma-host", "srdma-core")),
}
TARGETS = ("lib", "kvs")


def make(*args: str) -> str:
    """Output of make, run without the environment of a make that called this program."""
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "-s", "-C", str(ROOT), f"BUILD={os.environ.get('BUILD', 'build')}", *args]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout


class BuildNative(build_ext):
    """Builds the C libraries first, then links with them and the libraries that they need."""

    def build_extensions(self) -> None:
        make(*TARGETS)
        libraries = make("print-libs").split()
        for ext in self.extensions:
            ext.extra_link_args += ["-fno-lto", *libraries]
        super().build_extensions()


class BuildWithWorker(BuildNative):
    """Also builds srdma-offload and copies it into the package, unless built in place."""

    def build_extensions(self) -> None:
        super().build_extensions()
        if self.inplace or getattr(self, "editable_mode", False):
            return
        make("offload")
        target = Path(self.build_lib) / "srdma" / "bin"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILD / "srdma-offload", target)


def extensions(name: str) -> list[Extension]:
    """Extension modules of a part; none if the environment has SRDMA_WITHOUT_NATIVE."""
    if os.environ.get("SRDMA_WITHOUT_NATIVE"):
        return []
    from Cython.Build import cythonize

    part = PARTS[name]
    sources = sorted((part.base / part.package.replace(".", "/")).glob("*.pyx"))
    if "-libverbs" not in make("print-libs").split():
        sources = [source for source in sources if source.stem != "verbs_queue"]
    modules = [
        Extension(
            f"{part.package}.{source.stem}",
            [os.path.relpath(source)],
            include_dirs=[str(ROOT / d) for d in ("csrc", "include", ".", "bench/kvs")],
            extra_objects=[str(BUILD / f"lib{library}.a") for library in part.libraries],
            extra_compile_args=["-O2", "-g"],
        )
        for source in sources
    ]
    return cythonize(
        modules,
        build_dir=str(BUILD / "cython"),
        include_path=[str(ROOT), str(part.base)],
        language_level=3,
        force=True,
        quiet=True,
    )


def build_in_place(name: str) -> None:
    """Build the extension modules of a part next to their sources."""
    part = PARTS[name]
    top = part.package.split(".")[0]
    os.chdir(ROOT)
    setup(
        name=f"srdma-native-{name}",
        packages=[],
        package_dir={top: os.path.relpath(part.base / top)},
        ext_modules=extensions(name),
        cmdclass={"build_ext": BuildNative},
        script_args=["-q", "build_ext", "--inplace", "--force"]
        # Not build/lib: a wheel would take these modules from there.
        + ["--build-lib", str(BUILD / "cython" / name / "lib")]
        + ["--build-temp", str(BUILD / "cython" / name)],
    )


if __name__ == "__main__":
    for word in sys.argv[1:]:
        build_in_place(word)
