# srdma. The C half needs a C compiler, OpenSSL and zlib, and nothing of Python:
#     make lib offload
# The rest installs what it needs (.ci/setup): make demo, make test.
# V=1 shows the commands; BUILD=DIR builds elsewhere; FUZZ_SECONDS=N.
# Before a commit: make format lint.

BUILD ?= build
FUZZ_SECONDS ?= 60
PY := .venv/bin/python
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')
make-quietly := $(MAKE) --no-print-directory

# Sources -------------------------------------------------------------------

# Whether a program with these headers links with these libraries: a cross
# compiler sees the headers of the machine that it runs on.
can-link = $(shell printf '%b\n' $(patsubst %,'\0043include <%>',$(1)) \
	'int main(void) { return 0; }' | \
	$(CC) -x c - $(2) -o /dev/null >/dev/null 2>&1 && echo yes)

HAVE_VERBS := $(call can-link,infiniband/verbs.h rdma/rdma_cma.h,-lrdmacm -libverbs)
HAVE_IPSECMB := $(call can-link,intel-ipsec-mb.h,-lIPSec_MB)

CORE_DIRS := base wire crypto session memory qp requester responder path relay \
	port port/shm port/udp $(if $(HAVE_VERBS),port/verbs)
CORE_SRC := $(wildcard csrc/*.c $(CORE_DIRS:%=csrc/%/*.c))
ifndef HAVE_IPSECMB
CORE_SRC := $(filter-out csrc/crypto/%ipsecmb.c csrc/crypto/suite_ipsecmb%,$(CORE_SRC))
endif
# The simulated port: two relays joined in memory, for tests and the ladder.
SIM_SRC := $(wildcard csrc/port/sim/*.c)
HOST_SRC := $(wildcard host/*.c)
OFFLOAD_SRC := $(wildcard offload/*.c)
BENCH_SRC := $(wildcard bench/*.c)
KVS_SRC := $(wildcard bench/kvs/*.c)
C_TEST_SRC := $(wildcard tests/c/test_*.c tests/c/*/test_*.c tests/c/*/*/test_*.c)
ifndef HAVE_VERBS
C_TEST_SRC := $(filter-out %/test_port_verbs_region.c,$(C_TEST_SRC))
endif
C_HELPER_SRC := $(filter-out $(addprefix %,$(notdir $(wildcard tests/c/test_*.c \
	tests/c/*/test_*.c tests/c/*/*/test_*.c))),$(wildcard tests/c/*.c tests/c/*/*.c tests/c/*/*/*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
C_FILES := $(foreach d,csrc $(CORE_DIRS:%=csrc/%) csrc/port/verbs csrc/port/sim host offload tests/c \
	tests/c/* tests/c/*/* tests/e2e/c tests/fuzz bench bench/kvs,$(wildcard $(d)/*.c $(d)/*.h))
BUDGET_DIRS := $(wildcard csrc host offload srdma bench)

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIB := $(BUILD)/libsrdma-core.a
SIM := $(BUILD)/libsrdma-sim.a
# The host's half: what libsrdma will stand on.
HOST := $(BUILD)/libsrdma-host.a
OFFLOAD := $(BUILD)/srdma-offload
# The daemon without its main(), for the tests of its parts.
OFFLOAD_PARTS := $(BUILD)/liboffload.a
C_HELPERS := $(BUILD)/libcheck.a
# The key-value store of the benchmark, for bench/python/srdma_bench/native/kvs.pyx.
KVS := $(BUILD)/libkvs.a
C_TESTS := $(C_TEST_SRC:%.c=$(BUILD)/%)
FUZZERS := $(FUZZ_SRC:%.c=$(BUILD)/%)

# Flags ---------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wpointer-arith -Wcast-qual -Wwrite-strings
HARDENING := -fstack-protector-strong -D_FORTIFY_SOURCE=2
OPTIMISE := -O2
# SANITIZE is set by the targets asan and fuzz, which build in their own BUILD.
ifdef SANITIZE
HARDENING :=
OPTIMISE := -O1 -fno-omit-frame-pointer
SANITIZER_FLAGS := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all \
	-DSRDMA_SANITIZED
endif
# For any x86-64, gcc 12 clears and copies larger structures by `rep`; tuned for
# these CPUs it does not: 0.9 of the time of a message of 32 bytes.
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
OPTIMISE += -mtune=icelake-server
endif
# What is to be fast is optimised as a whole, where it is linked: the small
# functions of the data path are 15 % of a message. Tests are linked as usual.
ifeq ($(findstring clang,$(CC))$(SANITIZE),)
LTO := -flto -ffat-lto-objects
WHOLE := -O2 -flto=auto -Wno-maybe-uninitialized
endif
ALL_CPPFLAGS := -D_GNU_SOURCE -Icsrc -I. $(if $(HAVE_VERBS),-DSRDMA_HAVE_VERBS) \
	$(if $(HAVE_IPSECMB),-DSRDMA_HAVE_IPSECMB) \
	$(CPPFLAGS)
ALL_CFLAGS := -std=c11 $(OPTIMISE) -g -fPIC -pthread $(WARNINGS) $(HARDENING) \
	$(LTO) $(SANITIZER_FLAGS) $(CFLAGS)
ALL_LDFLAGS := -pthread -Wl,-z,relro,-z,now -fno-lto $(SANITIZER_FLAGS) \
	$(LDFLAGS)
LIBS := $(if $(HAVE_VERBS),-lrdmacm -libverbs) \
	$(if $(HAVE_IPSECMB),-lIPSec_MB) -lcrypto -lz

# The C half ----------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all lib kvs offload bench bench-quick check-bench native native-core check-c asan test-arm64 fuzz lint format setup test \
	test-unit \
	test-rxe test-rxe-job test-rxe-faults test-two-vms demo demo-rxe soak simulation storm transfer mutants \
	clean distclean print-libs run-fuzzers \
	without-verbs FORCE

all: lib offload

lib: $(LIB) $(HOST) $(if $(HAVE_VERBS),,without-verbs)
	@:

kvs: $(KVS)
	@:

offload: $(if $(OFFLOAD_SRC),$(OFFLOAD))
	@:

without-verbs:
	@echo 'srdma: no libibverbs and librdmacm headers: built without the' \
		'verbs port' >&2

print-libs:
	@echo $(LIBS) -lm

# Changes with the flags and the list of sources, so that nothing stale stays.
BUILD_KEY := $(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(CORE_SRC) $(SIM_SRC) $(HOST_SRC) \
	$(OFFLOAD_SRC) $(C_HELPER_SRC) $(KVS_SRC)
$(BUILD)/key: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_KEY)' | cmp -s - $@ || echo '$(BUILD_KEY)' >$@

$(BUILD)/%.o: %.c $(BUILD)/key
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CPPFLAGS) $(if $(filter tests/% bench/%,$<),-Ioffload -Itests/c \
		-Ibench -Ibench/kvs) \
		$(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(LIB): $(call objects,$(CORE_SRC))
$(SIM): $(call objects,$(SIM_SRC))
$(HOST): $(call objects,$(HOST_SRC))
$(OFFLOAD_PARTS): $(call objects,$(filter-out %/main.c,$(OFFLOAD_SRC)))
$(C_HELPERS): $(call objects,$(C_HELPER_SRC))
$(KVS): $(call objects,$(KVS_SRC))
$(BUILD)/%.a: $(BUILD)/key
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

LADDER := $(BUILD)/bench/ladder
PRIMITIVES := $(BUILD)/bench/primitives
MANY := $(BUILD)/bench/many
TLS_PEERS := $(BUILD)/bench/tls_echo $(BUILD)/bench/tls_load
bench: $(LADDER) $(MANY) $(PRIMITIVES) $(TLS_PEERS)
	@:

# What srdma is compared with.
$(TLS_PEERS): %: %.o $(BUILD)/bench/tls_link.o $(KVS)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o %.a,$^) \
		-lssl -lcrypto -lm

$(PRIMITIVES): $(BUILD)/bench/primitives.o $(OFFLOAD_PARTS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LIBS)

# Each for a moment: a wrong result fails, a slow one never.
bench-quick: bench native offload
	@$(PY) -c 'import matplotlib, srdma_bench' 2>/dev/null || .ci/setup bench
	@$(LADDER) --rounds 3
	@$(MANY) --qps 2000 --rounds 1 --messages 2000
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
		$(PY) -m srdma bench paper --smoke --out "$$out/paper" && \
		$(PY) -m srdma bench targets --smoke --out "$$out/targets"

# It stands on the tests' pairs of sessions and relays.
BENCH_NIC := bench/bench_leg.c bench/meeting.c
LADDER_SRC := bench/ladder.c bench/nic.c bench/tally.c $(BENCH_NIC) \
	$(wildcard bench/rung_*.c)
$(LADDER): $(call objects,$(LADDER_SRC))
$(MANY): $(call objects,bench/many.c bench/crowd.c $(BENCH_NIC))
$(LADDER) $(MANY): $(C_HELPERS) $(OFFLOAD_PARTS) $(HOST) $(SIM) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -o $@ $(filter %.o,$^) \
		$(filter %.a,$^) $(LIBS) -lcmocka

$(OFFLOAD): $(BUILD)/offload/main.o $(OFFLOAD_PARTS) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(WHOLE) -o $@ $(filter %.o %.a,$^) $(LIBS)

$(BUILD)/tests/c/test_tally: $(BUILD)/bench/tally.o
$(BUILD)/tests/c/test_%: $(BUILD)/tests/c/test_%.o $(C_HELPERS) \
		$(OFFLOAD_PARTS) $(KVS) $(HOST) $(SIM) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.o %.a,$^) \
		$(LIBS) -lcmocka -lm

$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(HOST) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ \
		$(filter %.o %.a,$^) $(LIBS)

-include $(patsubst %.c,$(BUILD)/%.d,$(CORE_SRC) $(SIM_SRC) $(HOST_SRC) $(OFFLOAD_SRC) $(C_TEST_SRC) \
	$(C_HELPER_SRC) $(FUZZ_SRC) $(BENCH_SRC) $(KVS_SRC))

# The Python half -----------------------------------------------------------

# Extension modules: of the library, of the load generators, and of tests only.
NATIVE := core bench tests
NATIVE_DIRS := srdma/native bench/python/srdma_bench/native tests/native
NATIVE_SRC := $(foreach d,$(NATIVE_DIRS),$(wildcard $(d)/*.py[xi] $(d)/*.pxd))

native: $(NATIVE:%=$(BUILD)/native-%)
	@:

native-core: $(BUILD)/native-core
	@:

$(BUILD)/native-bench: $(KVS)
$(NATIVE:%=$(BUILD)/native-%): $(BUILD)/native-%: $(NATIVE_SRC) build_native.py \
		$(wildcard csrc/*.h csrc/*/*.h csrc/port/*/*.h host/*.h bench/kvs/*.h) $(LIB) $(HOST) | $(PY)
	$(call say,CY,$*)
	$(Q)BUILD=$(BUILD) $(PY) build_native.py $*
	@touch $@

$(PY):
	@.ci/setup demo

setup:
	@.ci/setup test

# Checks --------------------------------------------------------------------

check-c: $(C_TESTS)
	@.ci/check-c $(C_TESTS)

SANITIZER_CC := $(if $(shell command -v clang),clang,$(CC))
asan:
	+@$(make-quietly) BUILD=$(BUILD)/asan CC=$(SANITIZER_CC) \
		SANITIZE=address,undefined check-c check-bench

# Programs that need nothing but themselves: they end well, and leak nothing.
check-bench: bench
	@$(LADDER) --rounds 1 >/dev/null
	@$(MANY) --qps 2 --qps 70 --burst 3 --rounds 1 --messages 500 >/dev/null
	@$(PRIMITIVES) --ms 1 aes-128-cmac:64 hmac-sha256:64 depth:3 >/dev/null

# The C half for ARM, as SmartNICs have it, and the main job between two such
# workers, all in qemu-user, where these tests would take minutes.
ARM64 := $(BUILD)/arm64
ARM64_LONG := capability congestion_fair flips relay_modes relay_random \
	relay_recovery relay_rekey relay_revoke relay_shm session_generations timer transfer \
	transfer_rekey
ARM64_TESTS := $(filter-out $(ARM64_LONG:%=tests/c/test_%.c),$(C_TEST_SRC))
test-arm64: native-core
	@.ci/setup arm64
	+@RUNNER=qemu-aarch64-static $(make-quietly) BUILD=$(ARM64) \
		CC=aarch64-linux-gnu-gcc C_TEST_SRC='$(ARM64_TESTS)' offload check-c
	@printf '#!/bin/sh\nexec qemu-aarch64-static %s "$$@"\n' \
		'$(abspath $(ARM64)/srdma-offload)' >$(ARM64)/worker
	@chmod +x $(ARM64)/worker
	@SRDMA_OFFLOAD=$(ARM64)/worker $(PY) -m srdma demo

fuzz:
	+@$(make-quietly) BUILD=$(BUILD)/fuzz CC=clang \
		SANITIZE=fuzzer-no-link,address,undefined run-fuzzers

run-fuzzers: $(FUZZERS)
	@.ci/fuzz $(FUZZ_SECONDS) $(FUZZERS)

lint:
	@.ci/setup test
	@echo '  ruff'; .venv/bin/ruff check -q .
	@echo '  ruff format'; .venv/bin/ruff format -q --check .
	@echo '  mypy'; .venv/bin/mypy --no-error-summary
	@$(if $(C_FILES),echo '  clang-format'; \
		clang-format --dry-run -Werror $(C_FILES))
	@echo '  budgets'; .venv/bin/lizard -w -L 80 -C 15 -a 6 $(BUDGET_DIRS)
	@find $(BUDGET_DIRS) -name '*.[ch]' -o -name '*.py' -o -name '*.pyx' | \
		xargs wc -l | awk '$$1 > 500 && $$2 != "total" \
		{ print $$2 ": " $$1 " lines, at most 500"; bad = 1 } END { exit bad }'

format:
	.venv/bin/ruff format -q .
	.venv/bin/ruff check -q --select I --fix .
	$(if $(C_FILES),clang-format -i $(C_FILES))

PYTEST := $(PY) -m pytest -q
# Folders that have nothing yet are no failure (pytest's exit code 5).
run-pytest = $(PYTEST) $(1) || [ $$? -eq 5 ]

test-unit: native offload bench
	@$(if $(wildcard tests/unit tests/e2e),\
		$(call run-pytest,$(wildcard tests/unit tests/e2e)))

# Two VMs beside each other, each with one CPU, which it keeps busy: what works,
# and what goes wrong. Both are shared out by what they take. The limit is for
# what hangs: they are over in a quarter of it, and each test has its own; what
# that does not interrupt shows its threads a little later.
RXE_FAULTS := $(patsubst %,tests/rxe/inside/test_%.py,\
	kill netem rekey_load wire_dies)
# And what other machines may not let root do.
RXE_JOB := $(filter-out $(RXE_FAULTS),$(wildcard tests/rxe/inside/test_*.py)) \
	tests/unit/test_offload_threads.py::test_memory_of_each_is_locked
IN_VM := $(PY) tests/rxe/vm.py --timeout 1200 -- $(PYTEST) \
	-p no:cacheprovider --durations 10 -o faulthandler_timeout=330
test-rxe: test-rxe-job test-rxe-faults
test-rxe-job: native offload
	@$(IN_VM) $(RXE_JOB)
test-rxe-faults: native offload
	@$(IN_VM) $(RXE_FAULTS)

# Real RoCE frames between two VMs, and somebody on their cable.
test-two-vms: native offload
	@$(PY) tests/rxe/two_vms.py

section = +@printf '\n==== %s ====\n' '$(1)'; $(make-quietly) $(2)
test:
	@.ci/setup test
	$(call section,build,lib offload native)
	$(call section,lint,lint)
	$(call section,C tests,check-c)
	$(call section,C tests under ASan and UBSan,asan)
	$(call section,simulation,simulation)
	$(call section,mutants,mutants)
	$(call section,Python tests,test-unit)
	$(call section,benchmarks,bench-quick)
	$(call section,fuzzing,fuzz FUZZ_SECONDS=5)
	$(call section,ARM,test-arm64)
	$(call section,SoftRoCE in a VM,test-rxe)
	$(call section,two VMs,test-two-vms)
	@printf '\n==== all sections passed ====\n'

demo:
	@.ci/setup demo
	+@$(make-quietly) offload native-core
	@$(PY) -m srdma demo

# On rxe itself where its module loads, else in the VM.
demo-rxe:
	@.ci/setup rxe
	+@$(make-quietly) offload native-core
	@if [ "$$(id -u)" -eq 0 ] && modprobe -q rdma_rxe; then \
		$(PY) -m srdma demo --device rxe; \
	else \
		$(PY) tests/rxe/vm.py --timeout 540 -- $(PY) -m srdma demo --device rxe; \
	fi

soak: native offload
	@.ci/setup test
	@$(call run-pytest,-m soak $(wildcard tests/unit tests/e2e))
	+@$(make-quietly) simulation SEEDS=$(or $(SEEDS),200000)
	+@$(make-quietly) storm transfer mutants fuzz

# Random lives of two relays, in virtual time: SEEDS of about 5,000 packets.
simulation: SEEDS ?= 2000
simulation: $(BUILD)/tests/c/test_relay_random
	@SRDMA_SEEDS=$(SEEDS) $<

# The same under the sanitizers.
SANITIZED_SEEDS ?= 2000
storm:
	@.ci/setup test
	+@$(make-quietly) BUILD=$(BUILD)/asan CC=$(SANITIZER_CC) \
		SANITIZE=address,undefined \
		$(BUILD)/asan/tests/c/test_relay_random
	@SRDMA_SEEDS=$(SANITIZED_SEEDS) $(BUILD)/asan/tests/c/test_relay_random

# Long transfers with somebody on the wire: PACKETS each.
PACKETS ?= 1000000
transfer: $(BUILD)/tests/c/test_transfer
	@SRDMA_PACKETS=$(PACKETS) $<

# Each deliberate fault of csrc/mutant.h is noticed, in so many storms at most.
MUTANT_SEEDS ?= 1000
mutants:
	+@$(make-quietly) BUILD=$(BUILD)/mutants CPPFLAGS=-DSRDMA_MUTANTS \
		$(BUILD)/mutants/tests/c/test_relay_random
	@.ci/mutants $(MUTANT_SEEDS) $(BUILD)/mutants/tests/c/test_relay_random

clean:
	rm -rf $(BUILD) $(NATIVE_DIRS:%=%/*.so) srdma/_*.so

distclean: clean
	rm -rf .venv srdma.egg-info bench/python/srdma_bench.egg-info
