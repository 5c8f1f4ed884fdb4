"""libsrdma as a product: exported functions, headers, manual page, installation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", ROOT / "build")).resolve()
LIBRARY = BUILD / "libsrdma.so.0"
HEADERS = sorted((ROOT / "include/srdma").glob("*.h"))
PROTOTYPE = re.compile(r"^(?:[a-z].*[ *])?\*?(srdma_\w+)\(", re.MULTILINE)

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="libsrdma was not built: install libcbor"
)


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def public_functions() -> set[str]:
    text = "\n".join(re.sub(r"/\*.*?\*/", "", h.read_text(), flags=re.DOTALL) for h in HEADERS)
    return set(PROTOTYPE.findall(text))


def test_library_exports_the_functions_of_the_headers() -> None:
    lines = run("nm", "-D", "--defined-only", LIBRARY).splitlines()
    exported = {line.split()[2].split("@")[0] for line in lines} - {"SRDMA_0"}
    assert exported == public_functions()
    assert len(exported) > 35


def test_library_needs_neither_openssl_nor_verbs() -> None:
    found = run("readelf", "-d", LIBRARY)
    needed = {name.split(".so")[0] for name in re.findall(r"NEEDED.*\[(.+)\]", found)}
    assert needed - {"libasan", "libubsan"} <= {"libc", "libcbor", "ld-linux-x86-64"}
    assert "[libsrdma.so.0]" in found


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.name)
def test_header_compiles_alone(header: Path, tmp_path: Path) -> None:
    for compiler, suffix in (["gcc", "-std=c11"], ".c"), (["g++", "-std=c++11"], ".cc"):
        if shutil.which(compiler[0]) is None:
            pytest.skip(f"{compiler[0]} is not installed")
        source = tmp_path / f"program{suffix}"
        source.write_text(f"#include <srdma/{header.name}>\n")
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        run(*compiler, *warnings, f"-I{ROOT / 'include'}", source)


def test_manual_page_names_every_function() -> None:
    text = (ROOT / "docs/man/libsrdma.7").read_text()
    assert set(re.findall(r"^\.BR (srdma_\w+) \(", text, re.MULTILINE)) == public_functions()
    if shutil.which("groff"):
        assert run("groff", "-ww", "-man", "-Tutf8", "-z", ROOT / "docs/man/libsrdma.7") == ""


def test_page_quotes_the_example() -> None:
    program = (ROOT / "examples/pingpong.c").read_text()
    blocks = re.findall(r"```c\n(.*?)```", (ROOT / "docs/c-library.md").read_text(), re.DOTALL)
    assert blocks
    assert [block for block in blocks if block not in program] == []


def test_install_and_uninstall(tmp_path: Path) -> None:
    make = ["make", "-s", f"BUILD={os.environ.get('BUILD', 'build')}", f"DESTDIR={tmp_path}"]
    run(*make, "PREFIX=/opt/srdma", "install")
    top = tmp_path / "opt/srdma"
    found = {str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir()}
    assert found == {
        "bin/srdma-control",
        "bin/srdma-offload",
        "lib/libsrdma.so",
        "lib/libsrdma.so.0",
        "lib/srdma/run/libibverbs.so",
        "lib/srdma/run/libibverbs.so.1",
        "lib/srdma/run/librdmacm.so",
        "lib/srdma/run/librdmacm.so.1",
        "lib/srdma/run/libsrdma-device.so.1",
        "lib/pkgconfig/srdma.pc",
        *(f"lib/systemd/system/{unit.name}" for unit in (ROOT / "offload").glob("*.service")),
        "share/man/man7/libsrdma.7",
        "share/man/man8/srdma-control.8",
        *(f"include/srdma/{h.name}" for h in HEADERS),
    }
    unit = (top / "lib/systemd/system/srdma-worker@.service").read_text()
    assert "\nExecStart=/opt/srdma/bin/srdma-offload --name" in unit
    if shutil.which("pkg-config"):
        flags = run(
            "pkg-config", "--cflags", "--libs", "srdma",
            PKG_CONFIG_PATH=str(top / "lib/pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(tmp_path),
        ).split()  # fmt: skip
        program = tmp_path / "pingpong"
        run("gcc", "-D_GNU_SOURCE", "-o", program, ROOT / "examples/pingpong.c", *flags)
        used = run("ldd", program, LD_LIBRARY_PATH=str(top / "lib"))
        assert f"{top}/lib/libsrdma.so.0" in used
    run(*make, "PREFIX=/opt/srdma", "uninstall")
    assert [p for p in top.rglob("*") if not p.is_dir()] == []
