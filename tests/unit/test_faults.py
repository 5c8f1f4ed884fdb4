"""Fault injection (tests/c/faults) replaces every function that can fail: a new call to another one
must be added there, or to a list below with the reason."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVES = ("libsrdma-core.a", "libsrdma-host.a", "liboffload.a")

# They report no failure.
NO_RESULT = """
    CRYPTO_memcmp EVP_CIPHER_free EVP_CIPHER_get0_provider EVP_CIPHER_get_iv_length
    EVP_CIPHER_get_key_length EVP_MAC_CTX_free EVP_MAC_free OSSL_PARAM_construct_end
    OSSL_PARAM_construct_utf8_string OSSL_PROVIDER_get0_provider_ctx OSSL_PROVIDER_unquery_operation
    abort dirname dlerror exit _exit free free_mb_mgr freeaddrinfo freeifaddrs gai_strerror
    getenv geteuid getpid getppid htonl htons ntohl ntohs ibv_ack_async_event ibv_ack_cq_events
    ibv_free_device_list ibv_get_device_name init_mb_mgr_auto init_mb_mgr_avx2 inet_ntop
    libdeflate_crc32 memchr memcmp memcpy memmove memset nettle_chacha_poly1305 nettle_cmac_aes128
    nettle_cmac_aes256 nettle_gcm_aes128 nettle_gcm_aes192 nettle_gcm_aes256 optarg optind
    rdma_destroy_event_channel sched_yield sigaddset sigemptyset snprintf strchr strcmp strcpy
    strcspn strerror strlen strncasecmp strncmp strncpy strnlen strrchr strsignal strspn strtod
    strtoul strtoull umask vsnprintf
"""
# They fail for wrong arguments only, which the caller checked or made.
ARGUMENTS = """
    clock_gettime dlinfo eventfd_read eventfd_write getrlimit if_nametoindex inet_pton isatty kill
    pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate pthread_attr_setstacksize
    pthread_mutex_destroy pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock
    sem_destroy sem_init sem_post sem_wait sigprocmask timerfd_settime
"""
# They end something: no caller could do anything about a failure.
ENDS = """
    cbor_decref close closedir ibv_close_device ibv_dealloc_pd ibv_dereg_mr
    ibv_destroy_comp_channel ibv_destroy_cq ibv_destroy_qp munmap rdma_ack_cm_event rdma_destroy_id
    rdma_disconnect shutdown
"""
# Their failure has no consequence: the next call does the work, or a limit stays as it is.
HARMLESS = """
    access ibv_get_async_event mlockall nanosleep prctl readdir sched_setaffinity setrlimit signal
"""
# Other tests make them fail: tests/c/host, tests/c/wire, tests/unit/test_offload.py;
# tests/c/offload/test_peer.c (syscall).
ELSEWHERE = """
    cbor_load dlmopen dlopen dlsym getaddrinfo getopt_long getpwnam_r syscall
"""
LISTED = set((NO_RESULT + ARGUMENTS + ENDS + HARMLESS + ELSEWHERE).split())
INTERNAL = re.compile(r"_GLOBAL_OFFSET_TABLE_|__\w+|cbor_(?!load|decref)\w+|srdma_\w+")
FORTIFIED = re.compile(r"__(\w+)_chk")


def called() -> set[str]:
    """The functions that the product's archives call and do not define."""
    used, defined = set(), set()
    for archive in ARCHIVES:
        listing = subprocess.run(
            ["nm", ROOT / "build" / archive], check=True, capture_output=True, text=True
        ).stdout
        for words in map(str.split, listing.splitlines()):
            if len(words) == 2 and words[0] == "U":
                used.add(FORTIFIED.sub(r"\1", words[1]))
            elif len(words) == 3:
                defined.add(words[2])
    return {name for name in used - defined if not INTERNAL.fullmatch(name)}


def replaced() -> set[str]:
    tables = (ROOT / "tests/c/faults").glob("faults*.c")
    return {
        name for table in tables for name in re.findall(r"^FAULT\((\w+),", table.read_text(), re.M)
    }


def test_every_function_that_can_fail_is_replaced() -> None:
    assert called() - replaced() - LISTED == set()


def test_no_function_is_listed_and_replaced() -> None:
    assert LISTED & replaced() == set()
