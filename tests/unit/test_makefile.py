"""The Makefile's probes of libraries, and its builds for ARM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# nettle/nettle-meta.h of other versions, as far as the probe reads it.
OLD = """\
struct nettle_aead { void (*digest)(void *ctx, unsigned long length, unsigned char *dst); };
extern const struct nettle_aead nettle_gcm_aes128;
"""
NEW = """\
struct nettle_aead { void (*digest)(void *ctx, unsigned char *dst); };
extern const struct nettle_aead nettle_gcm_aes128, nettle_cmac_aes128;
"""


def found(folder: Path) -> set[str]:
    """The optional libraries that `make` builds with; headers are looked for in folder first."""
    environment = os.environ | {"CPATH": str(folder), "MAKELEVEL": "1"}
    command = ["make", "-pnq", "-f", "Makefile", "format"]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = (line.partition(" := ") for line in made.stdout.splitlines())
    return {name for name, _, value in lines if name.startswith("HAVE_") and value == "yes"}


@pytest.mark.parametrize("header", [OLD, NEW], ids=["3.5", "4.0"])
def test_nettle_of_another_interface_is_left_out(tmp_path: Path, header: str) -> None:
    usual = found(tmp_path)
    if "HAVE_NETTLE" not in usual:
        pytest.skip("this machine has no Nettle 3.6 to 3.10")
    (tmp_path / "nettle").mkdir()
    (tmp_path / "nettle/nettle-meta.h").write_text(header)
    assert found(tmp_path) == usual - {"HAVE_NETTLE"}


def test_builds_for_arm_hold_a_lock() -> None:
    """Two makes that write the same objects at the same time would break each other's links."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    builds = [line for line in text.splitlines() if "BUILD=$(ARM64)" in line]
    assert builds
    assert all("flock $(ARM64)/lock" in line for line in builds)
