"""Host 1 in a machine of its own: configures its ports, has its identities, runs the service of
firmware/run, and forwards connections to the service of its NIC.

python -m tests.smartnic.far_host
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.rxe.ports import configure
from tests.smartnic import identities, plan

RUN = Path(__file__).with_name("firmware") / "run"


def main() -> None:
    configure(plan.hosts(2)[1].values())
    identities.install(Path(os.environ["SRDMA_VM_SCRATCH"]))
    folder = Path("/run/service")
    (folder / "cgi-bin").mkdir(parents=True)
    shutil.copy(RUN, folder / "cgi-bin/run")
    port = str(plan.SERVICE_PORT)
    forward = ["busybox", "nc", plan.service_address(1), port]
    subprocess.Popen(["busybox", "nc", "-ll", "-p", str(plan.FORWARD_PORT), "-e", *forward])
    place = f"{plan.test_address(1)}:{port}"
    os.execvp("busybox", ["busybox", "httpd", "-f", "-p", place, "-h", str(folder)])


if __name__ == "__main__":
    main()
