"""libdeflate reads /proc/self/auxv on ARM to choose its code (csrc/wire/icrc.h). A worker of a user
other than root cannot open this file any more once it is not dumpable."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.daemon import BINARY, worker

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

# Reports whether the process is dumpable (1 or 0) at the first CRC.
REPORTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>

uint32_t libdeflate_crc32(uint32_t crc, const void *bytes, size_t len)
{
    static uint32_t (*next)(uint32_t, const void *, size_t);

    if (!next) {
        *(void **)&next = dlsym(RTLD_NEXT, "libdeflate_crc32");
        fprintf(stderr, "first CRC: dumpable is %d\\n", prctl(PR_GET_DUMPABLE));
    }
    return next(crc, bytes, len);
}
"""


def test_the_code_is_chosen_while_the_process_is_dumpable(tmp_path: Path) -> None:
    library = tmp_path / "reporter.so"
    compile_it = ["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"]
    subprocess.run(compile_it, input=REPORTER, text=True, check=True)
    with worker(tmp_path, "a", LD_PRELOAD=str(library)) as found:
        assert "first CRC: dumpable is 1" in found.log()
        assert found.stop() == 0
